// Formats log lines: on a terminal, pino's JSON becomes one short line; elsewhere it stays JSON, or
// becomes the format of RunPod's log viewer.
import { styleText } from 'node:util';
import type { DestinationStream } from 'pino';
import { createLog, type Log } from '../base/log.ts';
import { escapeControls, escapeLine } from '../base/text/printable.ts';
import { choice } from './options.ts';
import { isOnRunPod } from './worker/runpod.ts';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

export function logLevelOption<Level extends (typeof LOG_LEVELS)[number]>(fallback: Level) {
  return choice({
    choices: LOG_LEVELS,
    default: fallback,
    placeholder: 'LEVEL',
    env: 'MILLRACE_LOG_LEVEL',
    help: `lowest level of log lines to print: ${LOG_LEVELS.join(', ')}`,
  });
}

/** Members that the short line shows elsewhere, or that do not help a reader. */
const SHOWN_APART = new Set(['level', 'time', 'msg', 'err', 'pid', 'hostname', 'name', 'endpoint']);

/** Limit of one text in a log line, characters; longer texts are cut. */
const MAX_TEXT_CHARS = 16_384;
/** Most lines of one message in a minute. */
const MAX_LINES = 1_000;
const LOG_BOUNDS = { maxTextChars: MAX_TEXT_CHARS, maxLinesPerMinute: MAX_LINES };

/** RunPod's client cuts the middle out of longer messages. */
const RUNPOD_MESSAGE_LENGTH = 4_096;

const LEVELS: Readonly<
  Record<number, { mark: string; style: 'gray' | 'yellow' | 'red' | 'cyan' }>
> = {
  10: { mark: 'trace', style: 'gray' },
  20: { mark: 'debug', style: 'gray' },
  30: { mark: 'info', style: 'cyan' },
  40: { mark: 'warn', style: 'yellow' },
  50: { mark: 'error', style: 'red' },
  60: { mark: 'fatal', style: 'red' },
};

/** Creates a log on standard error, in the format that fits its reader. */
export function createTerminalLog(level: string): Log {
  const format = chooseFormat();
  if (!format) return createLog({ level, ...LOG_BOUNDS });
  const destination: DestinationStream = {
    write: (line) => {
      process.stderr.write(`${format(line)}\n`);
    },
  };
  return createLog({ level, destination, ...LOG_BOUNDS });
}

/** Writes existing log lines (NDJSON) to standard error in the log's format. */
export function showLogLines(lines: Uint8Array | string): void {
  const text = Buffer.from(lines).toString();
  const format = chooseFormat();
  if (!format) {
    process.stderr.write(escapeControls(text));
    return;
  }
  const each = text.split('\n').filter((line) => line !== '');
  process.stderr.write(each.map((line) => `${format(line)}\n`).join(''));
}

/** Undefined if the lines stay unchanged. */
function chooseFormat(): ((line: string) => string) | undefined {
  if (process.stderr.isTTY) return formatLogLine;
  return isOnRunPod() ? formatRunPodLine : undefined;
}

/** Formats one JSON log line for a terminal, on one line except for a stack; other text stays unchanged. */
export function formatLogLine(line: string): string {
  const entry = readLogEntry(line);
  if (!entry) return escapeControls(line.trimEnd());
  const { mark, style } = LEVELS[Number(entry['level'])] ?? { mark: 'info', style: 'cyan' };
  const at = entry['time'];
  const time =
    typeof at === 'number' ? styleText('gray', new Date(at).toLocaleTimeString('en-GB')) : '';
  const endpoint = typeof entry['endpoint'] === 'string' ? escapeLine(entry['endpoint']) : '';
  const message = escapeLine(String(entry['msg'] ?? ''));
  // The message of an endpoint `handler` may begin with the same word.
  const subject = message.startsWith(`${endpoint} `) ? '' : endpoint;
  const head = [time, styleText(style, mark.padEnd(5)), subject];
  const rest = Object.entries(entry)
    .filter(([name]) => !SHOWN_APART.has(name))
    .map(([name, value]) => styleText('gray', escapeLine(`${name}=${showValue(value)}`)));
  const text = [...head, message, ...rest].filter(Boolean).join(' ');
  const stack = readStack(entry['err']);
  return stack ? `${text}\n${stack}` : text;
}

/** Formats one JSON log line for RunPod's viewer, which finds a job's lines by `requestId`. */
export function formatRunPodLine(line: string): string {
  const { err, job, level, msg, time: _, ...rest } = readLogEntry(line) ?? { msg: line.trimEnd() };
  const details = Object.entries(rest).map(([name, value]) => `${name}=${showValue(value)}`);
  const text = [String(msg ?? ''), ...details].filter(Boolean).join(' ');
  const stack = readStack(err);
  const { mark } = LEVELS[Number(level)] ?? { mark: 'info' };
  return JSON.stringify({
    requestId: typeof job === 'string' ? job : null,
    message: cutMiddle(stack ? `${text}\n${stack}` : text, RUNPOD_MESSAGE_LENGTH),
    // RunPod's viewer has no higher level.
    level: mark === 'fatal' ? 'ERROR' : mark.toUpperCase(),
  });
}

function cutMiddle(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const half = (maxLength - 1) / 2;
  return `${text.slice(0, Math.ceil(half))}…${text.slice(-Math.floor(half))}`;
}

/** Undefined if the line is no log entry. */
export function readLogEntry(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) && 'level' in value && 'msg' in value ? value : undefined;
  } catch {
    return undefined;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readStack(error: unknown): string {
  if (!isRecord(error)) return '';
  // The message contains the author's stack, if any; the error's own stack shows only our code.
  const isExplained = error['type'] === 'HandlerNotLoadedError';
  const shown = isExplained ? error['message'] : (error['stack'] ?? error['message']);
  return escapeControls(String(shown ?? '')).replaceAll(/^/gm, '    ');
}

function showValue(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
