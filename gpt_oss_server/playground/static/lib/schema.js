// Whether a text follows a JSON schema, and where it does not.
import { Validator } from "../vendor/json-schema/validator.js";

// An error of a branch that failed as a whole says less than the errors within it.
const SUMMARIES = new Set(["allOf", "anyOf", "oneOf", "$ref", "if", "properties", "items", "prefixItems", "additionalProperties", "patternProperties", "dependentSchemas"]);

// Returns { valid } or { valid: false, where, why }; null if the schema itself cannot be used.
export function checked(text, schema) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { valid: false, where: "", why: `It is no JSON: ${error.message}` };
  }
  let found;
  try {
    found = new Validator(schema, "2020-12", false).validate(value);
  } catch {
    return null; // a reference that leads nowhere, an expression that this browser does not know
  }
  if (found.valid) return { valid: true };
  const first = found.errors.find((each) => !SUMMARIES.has(each.keyword)) ?? found.errors.at(-1);
  return { valid: false, where: first.instanceLocation.replace(/^#/, "") || "/", why: inWords(first) };
}

const inWords = ({ keyword, error }) => (keyword === "false" ? "It is not allowed here." : error.replace(/^Instance type/, "The type").replace(/^Instance/, "It"));
