// What commands that run a platform or use its data folder share: options whose values become members of
// `PlatformOptions`, errors that name flags, and the end of a process whose database is lost.

import { resolve } from 'node:path';
import type { Log } from '../../base/log.ts';
import { PlatformOptionError } from '../../platform/option-error.ts';
import type { PlatformOptions } from '../../platform/platform-options.ts';
import { CommandError, EXIT } from '../command.ts';
import {
  flagName,
  type Member,
  type OptionTable,
  type OptionValues,
  text,
  UsageError,
} from '../options.ts';

/** Type of a member of `PlatformOptions`: `MemberType<'bounds.maxJsonDepth'>` is number. */
type MemberType<
  Path extends string,
  In = PlatformOptions,
> = Path extends `${infer Head}.${infer Rest}`
  ? MemberType<Rest, Head extends keyof In ? NonNullable<In[Head]> : never>
  : Path extends keyof In
    ? In[Path]
    : never;

/** An option has this in `sets` if its value becomes the member; `convert` puts the value into the member's form. */
export function member<Path extends string>(path: Path): Member<MemberType<Path> | undefined>;
export function member<Path extends string, T>(
  path: Path,
  convert: (value: T) => MemberType<Path> | undefined,
): Member<T>;
export function member<T>(path: string, convert = (value: T): unknown => value): Member<T> {
  return { path, convert };
}

export const mbInBytes = (mb: number) => mb * 1_048_576;
export const secondsInMs = (seconds: number) => seconds * 1_000;

/**
 * Puts the value of each option into the members that it sets. An option sets nothing if the option that it needs is not
 * given. @throws UsageError of a conversion
 */
export function composeMembers<Table extends OptionTable>(
  table: Table,
  values: OptionValues<Table>,
): PlatformOptions {
  const composed: Tree = {};
  const given = new Map<string, unknown>(Object.entries(values));
  for (const [name, { needs, sets }] of Object.entries(table)) {
    if (needs !== undefined && given.get(needs) === undefined) continue;
    for (const target of sets) {
      if (typeof target === 'string') continue;
      // The value has the type of its option, and `sets` of the option takes only members for it.
      setMember(composed, target.path.split('.'), target.convert(given.get(name) as never));
    }
  }
  // `member` has checked the type of each.
  return composed as PlatformOptions;
}

interface Tree {
  [name: string]: unknown;
}

function setMember(tree: Tree, [name = '', ...rest]: readonly string[], value: unknown): void {
  if (value === undefined) return;
  if (rest.length === 0) {
    tree[name] = value;
    return;
  }
  const part = (tree[name] ?? {}) as Tree;
  tree[name] = part;
  setMember(part, rest, value);
}

export const dataOption = (help: string) =>
  text({
    default: './.millrace',
    placeholder: 'DIR',
    env: 'MILLRACE_DATA',
    sets: [member('dataFolder', (path: string) => resolve(path))],
    help,
  });

export const webhookSecretFileOption = text({
  placeholder: 'FILE',
  env: 'MILLRACE_WEBHOOK_SECRET_FILE',
  sets: [member('webhooks.secretFile')],
  help: 'file of the secrets that sign webhooks; default: webhook-secrets in --data',
});

/** Names the flags of the command whose options these are. Returns other errors unchanged. */
export function explainPlatformError(error: unknown, options: OptionTable): unknown {
  if (!(error instanceof PlatformOptionError)) return error;
  const nameFlags = (path: string): string | undefined => {
    const setters = Object.entries(options).filter(([, { sets }]) =>
      sets.some((target) => path === (typeof target === 'string' ? target : target.path)),
    );
    return setters.map(([name]) => flagName(name)).join(', ') || undefined;
  };
  const { fault, option } = error;
  const problem = error.problem.replaceAll(/`([\w.]+)`/g, (text, name) => nameFlags(name) ?? text);
  const message = `${nameFlags(option) ?? option}: ${problem}`;
  return fault === 'invalid' ? new UsageError(message) : new CommandError(message);
}

/**
 * Returns what to do when the store is lost. Closing it would copy pages whose content nobody knows, so the
 * process exits as it is, as if it had been killed.
 */
export function exitOnStoreLoss(log: Log, store: 'file' | 'database' = 'file'): () => void {
  return () => {
    if (store === 'file') {
      log.fatal(
        'the disk failed to store a commit; exiting, because only a new start can read what the disk has',
      );
    } else {
      log.fatal(
        'the database is not as this platform left it; exiting, because only a new start can read it',
      );
    }
    process.exit(EXIT.failed);
  };
}
