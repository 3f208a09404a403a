// Options of browser sessions.
import { SESSION_IDLE_MS, SESSION_MAX_MS, type SessionTimes } from '../../platform/defaults.ts';
import { integer, type OptionValues } from '../options.ts';

const BOUNDS = { min: 1, max: 30 * 86_400, placeholder: 'S', section: 'advanced' } as const;

export const sessionOptions = {
  sessionSeconds: integer({
    ...{ ...BOUNDS, default: SESSION_MAX_MS / 1_000, env: 'MILLRACE_SESSION_SECONDS' },
    help: 'longest time of a browser session, s; all nodes need the same',
  }),
  sessionIdleSeconds: integer({
    ...{ ...BOUNDS, default: SESSION_IDLE_MS / 1_000, env: 'MILLRACE_SESSION_IDLE_SECONDS' },
    help: 'a browser session without a request for this time ends, s; all nodes need the same',
  }),
};

export function readSessionTimes(values: OptionValues<typeof sessionOptions>): SessionTimes {
  return { maxMs: values.sessionSeconds * 1_000, idleMs: values.sessionIdleSeconds * 1_000 };
}
