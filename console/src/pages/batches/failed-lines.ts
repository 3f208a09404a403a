// Reads the lines of a batch that failed: of each form of batches, what its line is called and why it failed.

export interface FailedLine {
  /** The caller's name for it. */
  name: string;
  jobId: string | undefined;
  reason: string;
}

export interface FailedLines {
  lines: FailedLine[];
  hasMore: boolean;
}

/** Lines that a page shows. */
const SHOWN = 100;

/** `isWhole`: the text has all lines; otherwise the last one may be cut. */
export function readFailedLines(text: string, { isWhole }: { isWhole: boolean }): FailedLines {
  const all = text.split('\n');
  const last = all.pop();
  if (isWhole && last) all.push(last);
  const lines = all.filter((line) => line !== '');
  return {
    lines: lines.slice(0, SHOWN).map(readLine),
    hasMore: !isWhole || lines.length > SHOWN,
  };
}

function readLine(line: string): FailedLine {
  const parsed: unknown = JSON.parse(line);
  const job = at(parsed, 'job');
  const response = at(parsed, 'response');
  const error =
    at(parsed, 'error') ?? at(job, 'error') ?? at(at(response, 'body'), 'error') ?? response;
  const status = at(job, 'status') ?? at(parsed, 'status') ?? at(response, 'status_code');
  return {
    name: String(at(parsed, 'custom_id') ?? at(parsed, 'id')),
    jobId: asText(at(job, 'id') ?? at(response, 'request_id')),
    reason: asText(error) ?? asText(at(error, 'message')) ?? String(status),
  };
}

function at(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return (value as Readonly<Record<string, unknown>>)[name] ?? undefined;
}

function asText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
