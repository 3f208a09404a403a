// Creates pino loggers over log lines, and loads pino only on first use: a thread whose handler
// never logs saves about 20 ms and 9 MB.
import { createRequire } from 'node:module';
import { extname } from 'node:path';
import type { Log } from '../../base/log.ts';
import type { LogBindings, LogLines } from './log-lines.ts';

let loaded: typeof import('../../base/log.ts') | undefined;

export function createLinesLog(lines: LogLines, bindings: LogBindings): Log {
  loaded ??= loadLogModule();
  const destination = { write: (line: string) => lines.write(line) };
  return loaded.createLog({ level: 'debug', destination }).child(bindings);
}

function loadLogModule(): typeof import('../../base/log.ts') {
  // The extension is computed because it is `.ts` in the sources and `.js` in the package.
  return createRequire(import.meta.url)(`../../base/log${extname(import.meta.url)}`);
}
