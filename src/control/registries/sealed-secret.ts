// Encrypts the secrets of users for the store: AES-256-GCM, a new nonce for each, and the record that the
// secret belongs to as associated data, so that a secret moved to another record does not open.
import { createCipheriv, createDecipheriv, hash, randomBytes } from 'node:crypto';
import { z } from 'zod';

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
export type SealedSecret = z.infer<typeof sealedSecret>;

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
