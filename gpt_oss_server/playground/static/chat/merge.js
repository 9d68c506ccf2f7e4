// Two tabs write one conversation: what each knows of it becomes one tree, and neither loses a message.
import { isOver } from "./apply.js";
import { lastStep, pathTo } from "./tree.js";

// All that either has. The branch that is shown stays that of `own`, unless `other` continued it.
export function merged(own, other) {
  const nodes = { ...other.nodes };
  for (const [id, node] of Object.entries(own.nodes)) nodes[id] = nodes[id] ? joined(node, nodes[id]) : node;
  const named = (other.named ?? 0) > (own.named ?? 0) ? other : own;
  const whole = { ...own, title: named.title, named: named.named, nodes, root: union(own.root, other.root), changed: Math.max(own.changed, other.changed) };
  const continued = own.head === null || (own.head !== other.head && pathTo(whole, other.head).some((node) => node.id === own.head));
  return continued ? { ...whole, head: other.head } : whole;
}

// Whether `own` has a message, a version or a part of an answer that `other` lacks.
export const hasMore = (own, other) =>
  (own.named ?? 0) > (other.named ?? 0) || Object.entries(own.nodes).some(([id, node]) => !other.nodes[id] || isFurther(node, other.nodes[id]));

const union = (a, b) => (b.every((id) => a.includes(id)) ? a : [...a, ...b.filter((id) => !a.includes(id))]);

function joined(own, other) {
  const children = union(own.children, other.children);
  if (isFurther(other, own)) return { ...other, children, chosen: own.chosen ?? other.chosen };
  return children === own.children ? own : { ...own, children, chosen: own.chosen ?? other.chosen };
}

function isFurther(a, b) {
  if (!a.steps || a.steps.length !== b.steps?.length) return (a.steps?.length ?? 0) > (b.steps?.length ?? 0);
  const [one, two] = [lastStep(a), lastStep(b)];
  if (!one || one.sequence !== two.sequence) return Boolean(one) && one.sequence > two.sequence;
  return isOver(one) && !isOver(two);
}
