"""The names and buckets of OpenTelemetry's conventions for generative AI, which are still in development."""

OPERATION, PROVIDER_NAME, MODEL = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"
ERROR_TYPE, TOOL_NAME, TOKEN_TYPE = "error.type", "gen_ai.tool.name", "gen_ai.token.type"
PROVIDER = "gpt-oss-server"
EXECUTE_TOOL = "execute_tool"
OPERATIONS = {"completions": "text_completion"}  # by API; any other's is `chat`

TOKENS = [float(4**power) for power in range(14)]
SECONDS = [0.01 * 2**power for power in range(14)]
FIRST_TOKEN = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
PER_TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
