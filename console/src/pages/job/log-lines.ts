// Reads the lines of a handler's log: pino's JSON, or anything else as it is.

export interface LogLine {
  text: string;
  /** Unix ms. */
  at: number | undefined;
  tone: 'plain' | 'warn' | 'bad';
  /** The other members, as JSON. */
  rest: string;
}

const WARN = 40;
const ERROR = 50;
/** Of a Date: handlers choose the time of their lines. */
const MAX_TIME = 8.64e15;
/** Of one line. */
const MAX_CHARACTERS = 4_000;

export function readLines(text: string): LogLine[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map(readLine);
}

function readLine(line: string): LogLine {
  const value = parse(line);
  if (typeof value !== 'object' || value === null) {
    return { text: line.slice(0, MAX_CHARACTERS), at: undefined, tone: 'plain', rest: '' };
  }
  const { level, msg, time, ...rest } = { level: 0, msg: '', time: undefined, ...value };
  const isWarning = typeof level === 'number' && level >= WARN;
  const isError = typeof level === 'number' && level >= ERROR;
  return {
    text: String(msg).slice(0, MAX_CHARACTERS),
    at: typeof time === 'number' && Math.abs(time) <= MAX_TIME ? time : undefined,
    tone: isError ? 'bad' : isWarning ? 'warn' : 'plain',
    rest: Object.keys(rest).length > 0 ? JSON.stringify(rest).slice(0, MAX_CHARACTERS) : '',
  };
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
