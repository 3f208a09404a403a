// Variables of templates and pods in the store: those of one record sealed together, if the platform has a key.
import { z } from 'zod';
import type { Store, StoredResource } from '../../store/store.ts';
import { HIDDEN_VALUE } from '../../wire/resources/pod.ts';
import { type SecretSealer, sealedSecret, UnopenedSecretError } from './sealed-secret.ts';

/** Records read in one operation; they can be large. */
const PAGE = 100;

const variables = z.record(z.string(), z.string());

/** The names are in the clear, for a platform that lacks the key. */
export const storedVariables = z.union([
  variables,
  z.object({ names: z.array(z.string()), sealed: sealedSecret }),
]);
type StoredVariables = z.infer<typeof storedVariables>;

/** Variables that cannot be decrypted: the record is stored with them as they are. */
export const unopenedVariables = z.object({
  sealed: sealedSecret,
  /** Why they cannot be decrypted. */
  why: z.string(),
});

/** In memory. */
export interface Variables {
  env: Record<string, string>;
  /** Present: the values of `env` are hidden, and nothing may start with them. */
  unopened?: z.infer<typeof unopenedVariables>;
}

/** What the variables belong to. */
export interface VariablesOwner {
  kind: 'pod' | 'template';
  userId: string;
  id: string;
}

export function sealVariables(
  sealer: SecretSealer,
  { env, unopened }: Variables,
  owner: VariablesOwner,
): StoredVariables {
  const names = Object.keys(env);
  if (unopened) return { names, sealed: unopened.sealed };
  if (names.length === 0 || sealer.keyId === undefined) return env;
  return { names, sealed: sealer.seal(JSON.stringify(env), listFacts(owner)) };
}

export function openVariables(
  sealer: SecretSealer,
  stored: StoredVariables,
  owner: VariablesOwner,
): Variables {
  if (!isSealed(stored)) return { env: stored };
  const { names, sealed } = stored;
  try {
    const text = sealer.open(sealed, listFacts(owner));
    return { env: variables.parse(JSON.parse(text)) };
  } catch (error) {
    if (!(error instanceof UnopenedSecretError)) throw error;
    const hidden = names.map((name) => [name, HIDDEN_VALUE]);
    return { env: Object.fromEntries(hidden), unopened: { sealed, why: error.message } };
  }
}

/** A variable may be named like a member of a sealed record, but its value is a text. */
function isSealed(stored: StoredVariables): stored is Exclude<StoredVariables, Variables['env']> {
  return typeof stored['sealed'] === 'object';
}

/** Variables of another record, even one of the same user, cannot be opened. */
function listFacts({ id, kind, userId }: VariablesOwner): string[] {
  return ['variables', kind, userId, id];
}

/** Records whose variables need a key that is not in the key file. */
export interface LockedVariables {
  keys: Set<string>;
  records: number;
}

/** Seals variables that are in the clear or sealed with an earlier key; leaves those that cannot be opened. */
export async function resealVariables(
  store: Store,
  sealer: SecretSealer,
  kind: VariablesOwner['kind'],
): Promise<LockedVariables> {
  const locked: LockedVariables = { keys: new Set(), records: 0 };
  let before: number | undefined;
  do {
    const listing = { kind, before, limit: PAGE };
    const page = await store.read((tx) => tx.resources(listing));
    for (const { body, id } of page) {
      const { env } = readHolder(kind, body);
      if (isSealed(env) && !sealer.has(env.sealed.keyId)) {
        locked.keys.add(env.sealed.keyId);
        locked.records += 1;
      } else if (needsSeal(sealer, env)) {
        await store.write((tx) => {
          const stored = tx.resource({ kind, id });
          if (stored) tx.putResource(reseal(sealer, kind, stored));
        });
      }
    }
    before = page.length < PAGE ? undefined : page.at(-1)?.position;
  } while (before !== undefined);
  return locked;
}

function needsSeal({ keyId }: SecretSealer, env: StoredVariables): boolean {
  if (keyId === undefined) return false;
  return isSealed(env) ? env.sealed.keyId !== keyId : Object.keys(env).length > 0;
}

function reseal(
  sealer: SecretSealer,
  kind: VariablesOwner['kind'],
  stored: StoredResource,
): StoredResource {
  const { env, replace } = readHolder(kind, stored.body);
  const owner = { kind, userId: stored.userId, id: stored.id };
  const opened = openVariables(sealer, env, owner);
  return { ...stored, body: JSON.stringify(replace(sealVariables(sealer, opened, owner))) };
}

const holder = z.looseObject({ env: storedVariables });
const podHolder = z.looseObject({ spec: holder });

function readHolder(kind: VariablesOwner['kind'], body: string) {
  if (kind === 'template') {
    const template = holder.parse(JSON.parse(body));
    return { env: template.env, replace: (env: StoredVariables) => ({ ...template, env }) };
  }
  const pod = podHolder.parse(JSON.parse(body));
  const replace = (env: StoredVariables) => ({ ...pod, spec: { ...pod.spec, env } });
  return { env: pod.spec.env, replace };
}
