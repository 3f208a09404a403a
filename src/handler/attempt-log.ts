// Makes pino loggers over log lines, and loads pino only when the first one is asked for: a thread
// whose handler never logs is some 20 ms and 9 MB cheaper.
import { createRequire } from 'node:module';
import { extname } from 'node:path';
import type { Log } from '../base/log.ts';
import type { LogBindings, LogLines } from './log-lines.ts';

let loaded: typeof import('../base/log.ts') | undefined;

export function createLinesLog(lines: LogLines, bindings: LogBindings): Log {
  loaded ??= loadLogModule();
  const destination = { write: (line: string) => lines.write(line) };
  return loaded.createLog({ level: 'debug', destination }).child(bindings);
}

function loadLogModule(): typeof import('../base/log.ts') {
  // The path is put together because it is `.ts` in the sources and `.js` in what is shipped.
  return createRequire(import.meta.url)(`../base/log${extname(import.meta.url)}`);
}
