// The JSON Schema of a handler's input, as workers send it to the platform: its bounds, which both sides check.

/** Longest JSON text of a schema, bytes. */
export const MAX_INPUT_SCHEMA_BYTES = 65_536;
/** Deepest nesting of a schema's objects and arrays. */
export const MAX_INPUT_SCHEMA_DEPTH = 64;

/** Says why the text is not the schema of an input; undefined if it is one. */
export function findSchemaFault(text: string): string | undefined {
  const bytes = text.length > MAX_INPUT_SCHEMA_BYTES ? text.length : Buffer.byteLength(text);
  if (bytes > MAX_INPUT_SCHEMA_BYTES) {
    return `has ${bytes} bytes; at most ${MAX_INPUT_SCHEMA_BYTES} are allowed`;
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'is not JSON';
  }
  if (!isNested(value) || Array.isArray(value)) return 'must be a JSON object';
  if (isDeeper(value, MAX_INPUT_SCHEMA_DEPTH)) {
    return `is nested deeper than ${MAX_INPUT_SCHEMA_DEPTH} levels`;
  }
  return undefined;
}

/** Level by level: recursion could exhaust the stack before the bound is found. */
function isDeeper(root: object, maxDepth: number): boolean {
  let level: object[] = [root];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth === maxDepth) return true;
    level = level.flatMap((each) => Object.values(each).filter(isNested));
  }
  return false;
}

function isNested(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
