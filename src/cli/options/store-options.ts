// The flags of the database.
import { readFileSync } from 'node:fs';
import { readVariable } from '../config.ts';
import { type OptionValues, text, UsageError } from '../options.ts';

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
};

/** @throws UsageError */
export function readStore(values: OptionValues<typeof storeOptions>): {
  store: string | undefined;
  storePassword: string | undefined;
} {
  const { store, storePasswordFile: path } = values;
  if (store === undefined) {
    if (path !== undefined) throw new UsageError('--store-password-file needs --store');
    return { store, storePassword: undefined };
  }
  return { store, storePassword: readPostgresPassword(path) };
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
