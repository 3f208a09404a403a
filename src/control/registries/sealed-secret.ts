// The secrets of users in the store, sealed: AES-256-GCM, a new nonce for each, and the record that the secret
// belongs to as associated data, so that a secret moved to another record does not open.
import { createCipheriv, createDecipheriv, hash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import type { Store, StoredResource } from '../../store/store.ts';
import { HIDDEN_VALUE } from '../../wire/resources/fields.ts';

const ALGORITHM = 'aes-256-gcm';
export const SECRET_KEY_BYTES = 32;
/** The size that GCM is made for. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_ID_LENGTH = 12;

export const sealedSecret = z.object({
  keyId: z.string(),
  /** Base64. */
  nonce: z.string(),
  /** Base64: ciphertext and tag. */
  data: z.string(),
});
type SealedSecret = z.infer<typeof sealedSecret>;

/** Thrown if a secret cannot be opened; says why, without the secret. */
export class UnopenedSecretError extends Error {
  override readonly name = 'UnopenedSecretError';
}

/** Seals with the first key, and opens with each. */
export class SecretSealer {
  /** By ID, the current one first. */
  readonly #keys: ReadonlyMap<string, Uint8Array>;

  /** `keys`: 32 bytes each, the current one first. Without any, nothing can be sealed. */
  constructor(keys: readonly Uint8Array[]) {
    this.#keys = new Map(keys.map((key) => [nameKey(key), key]));
  }

  /** ID of the key that seals; undefined without a key. */
  get keyId(): string | undefined {
    const [id] = this.#keys.keys();
    return id;
  }

  has(keyId: string): boolean {
    return this.#keys.has(keyId);
  }

  /** `owner`: what the secret belongs to; the same is needed to open it. @throws Error without a key */
  seal(secret: string, owner: readonly string[]): SealedSecret {
    const [current] = this.#keys;
    if (!current) throw new Error('no key to seal secrets with');
    const [keyId, key] = current;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(encodeOwner(keyId, owner));
    const data = Buffer.concat([
      cipher.update(secret, 'utf8'),
      cipher.final(),
      cipher.getAuthTag(),
    ]);
    return { keyId, nonce: nonce.toString('base64'), data: data.toString('base64') };
  }

  /** @throws UnopenedSecretError */
  open({ data, keyId, nonce }: SealedSecret, owner: readonly string[]): string {
    const key = this.#keys.get(keyId);
    if (!key) throw new UnopenedSecretError(`its key ${keyId} is not in the secrets key file`);
    const bytes = Buffer.from(data, 'base64');
    try {
      const opener = createDecipheriv(ALGORITHM, key, Buffer.from(nonce, 'base64'), {
        authTagLength: TAG_BYTES,
      });
      opener.setAAD(encodeOwner(keyId, owner));
      opener.setAuthTag(bytes.subarray(-TAG_BYTES));
      const text = Buffer.concat([opener.update(bytes.subarray(0, -TAG_BYTES)), opener.final()]);
      return text.toString('utf8');
    } catch {
      // The cause could only say that the tag is wrong.
      throw new UnopenedSecretError('it was changed in the database, or is damaged');
    }
  }
}

/** Says nothing about the key. */
function nameKey(key: Uint8Array): string {
  return hash('sha256', Buffer.concat([Buffer.from('millrace secrets key\0'), key]), 'hex').slice(
    0,
    KEY_ID_LENGTH,
  );
}

function encodeOwner(keyId: string, owner: readonly string[]): Buffer {
  return Buffer.from(JSON.stringify([keyId, ...owner]));
}

/** Records read in one operation; they can be large. */
const PAGE = 100;

const variables = z.record(z.string(), z.string());

/**
 * Variables of a template or a pod, sealed together if the platform has a key. The names are in the clear, for a platform
 * that lacks the key.
 */
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
interface Variables {
  env: Record<string, string>;
  /** Present: the values of `env` are hidden, and nothing may start with them. */
  unopened?: z.infer<typeof unopenedVariables>;
}

/** What the variables belong to. */
interface VariablesOwner {
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
interface LockedVariables {
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
