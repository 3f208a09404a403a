// Reads the JSON text of a job's input, and says where it is wrong.

export const JSON_HELP = 'The input is a JSON object.';

export type ReadInput = { value: object } | { problem: string };

export function readInput(text: string): ReadInput {
  let value: unknown;
  try {
    value = JSON.parse(text.trim() === '' ? '{}' : text);
  } catch (error) {
    return { problem: explain(error, text) };
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { value };
  return { problem: 'The input must be an object: { … }' };
}

/** Browsers name the position in the text; people look for a line. */
function explain(error: unknown, text: string): string {
  const message = error instanceof Error ? error.message : String(error);
  const [, position] = /position (\d+)/.exec(message) ?? [];
  if (position === undefined || message.includes('line')) return message;
  const line = text.slice(0, Number(position)).split('\n').length;
  return `${message} (line ${line})`;
}
