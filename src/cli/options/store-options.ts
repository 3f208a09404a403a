// The flags of the database.
import { readFileSync } from 'node:fs';
import type { StoreLimits } from '../../platform/platform-options.ts';
import { readVariable } from '../config.ts';
import { integer, type OptionValues, text, UsageError } from '../options.ts';

const HOUR_MS = 3_600_000;

function milliseconds(help: string, fallback: number) {
  const range = { min: 100, max: HOUR_MS };
  return integer({ ...range, default: fallback, placeholder: 'MS', section: 'advanced', help });
}

export function passwordFileOption(owner: string) {
  return text({
    placeholder: 'FILE',
    env: 'MILLRACE_STORE_PASSWORD_FILE',
    help: `file with the password for ${owner}; default: the password of the URL, or PGPASSWORD`,
  });
}

export const storeOptions = {
  store: text({
    placeholder: 'URL',
    env: 'MILLRACE_STORE',
    help: 'Postgres database for jobs, keys and endpoints: postgres://USER@HOST/DATABASE; default: a file in --data',
  }),
  storePasswordFile: passwordFileOption('--store'),
  storeConnectMs: milliseconds('maximum time to connect to Postgres, ms', 10_000),
  storeLockWaitMs: milliseconds(
    'how long the start waits for another platform to leave the Postgres database, ms',
    15_000,
  ),
  storeStatementMs: milliseconds('maximum time of one statement on Postgres, ms', 30_000),
  storeWaitMs: milliseconds(
    'how long calls wait for a lost connection to Postgres before they fail with 503, ms',
    5_000,
  ),
};

/** @throws UsageError */
export function readStore(values: OptionValues<typeof storeOptions>): {
  store: string | undefined;
  storePassword: string | undefined;
  storeLimits: StoreLimits;
} {
  const { store, storePasswordFile: path } = values;
  const storeLimits = {
    connectTimeoutMs: values.storeConnectMs,
    lockWaitMs: values.storeLockWaitMs,
    statementTimeoutMs: values.storeStatementMs,
    waitMs: values.storeWaitMs,
  };
  if (store === undefined) {
    if (path !== undefined) throw new UsageError('--store-password-file needs --store');
    return { store, storePassword: undefined, storeLimits };
  }
  return { store, storePassword: readPostgresPassword(path), storeLimits };
}

/** The URL's own password wins. @throws UsageError */
export function readPostgresPassword(path: string | undefined): string | undefined {
  return path === undefined ? readVariable('PGPASSWORD') : readPassword(path);
}

function readPassword(path: string): string {
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(`--store-password-file: ${reason}`);
  }
  const password = content.replace(/\r?\n$/, '');
  if (password === '') throw new UsageError(`--store-password-file: ${path} is empty`);
  return password;
}
