// Creates the pino logger of an author's code, `ctx.log`, with API keys replaced.
import { type Logger, pino } from 'pino';
import { CENSOR, cleanLogLine, SECRET_PATHS } from '../../base/log-line.ts';

/** The logger writes finished lines to `write`. */
export function createAuthorLog(write: (line: string) => void): Logger {
  const settings = {
    level: 'debug',
    base: null,
    redact: { paths: SECRET_PATHS, censor: CENSOR },
    hooks: { streamWrite: cleanLogLine },
  };
  return pino(settings, { write });
}
