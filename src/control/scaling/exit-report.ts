// Finds the reason of a worker's exit at the end of its log. Pure.

const MAX_LENGTH = 300;
/** pino's level: lower lines do not explain an exit. */
const WARN = 40;

/**
 * Returns the last line that may be the reason, skipping stack frames. From a line of a Millrace
 * worker's own log, returns its message and its cause if it is a warning or an error.
 */
export function findLastOutput(log: string): string | undefined {
  for (const line of log.split('\n').reverse()) {
    const text = readLine(line);
    if (text !== undefined) return text.slice(0, MAX_LENGTH);
  }
  return undefined;
}

function readLine(line: string): string | undefined {
  if (!/^\S.*\w/.test(line)) return undefined;
  const record = parseRecord(line);
  if (record === undefined) return line;
  const { err, level, msg, reason } = record;
  if (typeof level === 'number' && level < WARN) return undefined;
  const text = typeof msg === 'string' ? msg : line;
  const cause = isRecord(err) ? err['message'] : reason;
  return typeof cause !== 'string' || text.includes(cause) ? text : `${text}: ${cause}`;
}

function parseRecord(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{"level":')) return undefined;
  try {
    const parsed: unknown = JSON.parse(line);
    return isRecord(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
