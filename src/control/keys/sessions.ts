// Browsers' sessions: each stands for a key, ends with it, and is stored by the hash of its token.
import { hash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import { ENDING, type Store, type StoredResource } from '../../store/store.ts';
import { Positions } from '../user-resources.ts';
import type { KeyHolder, Keys } from './keys.ts';

/** A session ends after this time, by default 7 days, whatever its browser does. */
export const SESSION_MAX_MS = 604_800_000;
/** A session that no request has used for this time ends, by default 12 hours. */
export const SESSION_IDLE_MS = 43_200_000;
/** Sessions of one key; another one ends the one that was unused for longest. */
export const MAX_KEY_SESSIONS = 20;
/** The store learns of a use only after this time, 15 minutes: most requests write nothing. */
const USE_STEP_MS = 900_000;
/** A session that is used must not end: its uses are written this often in its idle time. */
const USES_PER_IDLE = 4;
const KIND = 'session';

export interface BrowserSession {
  /** Hash of the token. */
  id: string;
  keyId: string;
  /** Unix ms. */
  createdAt: number;
  /** Unix ms; up to 15 minutes before the last use. */
  usedAt: number;
}

const sessionBody = z.object({ keyId: z.string(), createdAt: z.number(), usedAt: z.number() });

/** What one node asks of the node that writes sessions. */
export const sessionChange = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('start'), id: z.string(), keyId: z.string() }),
  z.object({ kind: z.literal('use'), id: z.string() }),
  z.object({ kind: z.literal('end'), id: z.string() }),
]);
export type SessionChange = z.infer<typeof sessionChange>;

/** When sessions end. */
export interface SessionTimes {
  /** After the sign-in, ms. Default SESSION_MAX_MS. */
  maxMs?: number | undefined;
  /** After the last request, ms. Default SESSION_IDLE_MS. */
  idleMs?: number | undefined;
}

export interface SessionsOptions {
  store: Store;
  clock: Clock;
  keys: Pick<Keys, 'find' | 'onChange'>;
  times?: SessionTimes | undefined;
  /** Sends a change to the node that writes; false: this node does. Default: it always does. */
  send?: ((change: SessionChange) => Promise<boolean>) | undefined;
}

/** A session with what its key allows. */
export interface HeldSession {
  session: BrowserSession;
  holder: KeyHolder;
}

/** All sessions are in memory, so that a request reads no store. */
export class Sessions {
  /** Longest time of a session, ms. */
  readonly maxMs: number;
  readonly #idleMs: number;
  readonly #useStepMs: number;
  readonly #options: SessionsOptions;
  readonly #known = new Map<string, BrowserSession>();
  readonly #listeners = new Set<(id: string) => void>();
  /** Uses that are being written. */
  readonly #using = new Set<string>();
  #positions = new Positions(0);

  private constructor(options: SessionsOptions) {
    const { idleMs = SESSION_IDLE_MS, maxMs = SESSION_MAX_MS } = options.times ?? {};
    this.maxMs = maxMs;
    this.#idleMs = idleMs;
    this.#useStepMs = Math.min(USE_STEP_MS, idleMs / USES_PER_IDLE);
    this.#options = options;
    options.keys.onChange((keyId) => {
      for (const { id } of this.#ofKey(keyId)) this.#notify(id);
    });
  }

  static async open(options: SessionsOptions): Promise<Sessions> {
    const sessions = new Sessions(options);
    await sessions.reload();
    return sessions;
  }

  /** Reads them again: another node may have changed them. */
  async reload(): Promise<void> {
    const listing = { kind: KIND, limit: Number.MAX_SAFE_INTEGER };
    const stored = await this.#options.store.read((tx) => tx.resources(listing));
    const ids = new Set(stored.map(({ id }) => id));
    for (const id of this.#known.keys()) if (!ids.has(id)) this.#forget(id);
    for (const each of stored) this.#learn(read(each));
    this.#positions = new Positions(stored[0]?.position ?? 0);
  }

  /** Returns undefined for an unknown, ended or malformed token, and if its key has ended. */
  find(token: string): HeldSession | undefined {
    if (!TOKEN_FORM.test(token)) return undefined;
    const session = this.#known.get(hashToken(token));
    const holder = session && this.#holderOf(session);
    return holder && this.#endOf(session) > this.#options.clock.now()
      ? { session, holder }
      : undefined;
  }

  /** Finds the session and notes the use. */
  use(token: string): HeldSession | undefined {
    const held = this.find(token);
    const { id = '', usedAt = 0 } = held?.session ?? {};
    if (held && usedAt + this.#useStepMs <= this.#options.clock.now()) void this.#noteUse(id);
    return held;
  }

  /** Starts a session of a key. @returns the token, which nothing else has */
  async start({ keyId }: KeyHolder): Promise<{ token: string; session: BrowserSession }> {
    const token = generateToken();
    const id = hashToken(token);
    await this.#change({ kind: 'start', id, keyId });
    const now = this.#options.clock.now();
    const session = this.#known.get(id) ?? { id, keyId, createdAt: now, usedAt: now };
    this.#learn(session);
    return { token, session };
  }

  async end(id: string): Promise<void> {
    await this.#change({ kind: 'end', id });
    this.#forget(id);
  }

  /** Unix ms; undefined for an unknown session. For KeyWatch. */
  endOf(id: string): number | undefined {
    const session = this.#known.get(id);
    return session && this.#endOf(session);
  }

  /** Calls the listener with each session that starts, is used or may have ended. @returns the function that stops it */
  onChange(listener: (id: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Makes a change on the node that writes. */
  async apply(change: SessionChange): Promise<void> {
    const now = this.#options.clock.now();
    const session = this.#known.get(change.id);
    if (change.kind === 'start') {
      const { id, keyId } = change;
      await this.#put({ id, keyId, createdAt: now, usedAt: now }, this.#listEnded(keyId, now));
    } else if (session && change.kind === 'use') await this.#use({ ...session, usedAt: now });
    else if (change.kind === 'end') await this.#remove([change.id]);
  }

  async #change(change: SessionChange): Promise<void> {
    if (await this.#options.send?.(change)) return;
    await this.apply(change);
  }

  /** Never rejects: the next request notes its use again. */
  async #noteUse(id: string): Promise<void> {
    if (this.#using.has(id)) return;
    this.#using.add(id);
    try {
      await this.#change({ kind: 'use', id });
    } catch {
      // The store is not available now.
    } finally {
      this.#using.delete(id);
    }
  }

  async #put(session: BrowserSession, ended: readonly string[]): Promise<void> {
    const { id, ...body } = session;
    const stored: StoredResource = {
      kind: KIND,
      id,
      userId: '',
      parent: '',
      body: JSON.stringify(body),
      position: this.#positions.next(session.createdAt),
    };
    await this.#options.store.write((tx) => {
      for (const other of ended) tx.removeResource({ kind: KIND, id: other });
      tx.putResource(stored);
    });
    for (const other of ended) this.#forget(other);
    this.#learn(session);
  }

  /** The session may end meanwhile, and stays ended. */
  async #use({ id, ...body }: BrowserSession): Promise<void> {
    const isOpen = await this.#options.store.write((tx) => {
      const stored = tx.resource({ kind: KIND, id });
      if (stored) tx.putResource({ ...stored, body: JSON.stringify(body) });
      return stored !== undefined;
    });
    if (isOpen) this.#learn({ id, ...body });
  }

  async #remove(ids: readonly string[]): Promise<void> {
    await this.#options.store.write((tx) => {
      for (const id of ids) tx.removeResource({ kind: KIND, id });
    }, ENDING);
    for (const id of ids) this.#forget(id);
  }

  /** All that have ended, and the oldest of the key beyond its number. */
  #listEnded(keyId: string, now: number): string[] {
    const all = [...this.#known.values()];
    const isOver = (each: BrowserSession) => this.#endOf(each) <= now;
    const open = this.#ofKey(keyId)
      .filter((each) => !isOver(each))
      .toSorted((a, b) => b.usedAt - a.usedAt);
    const surplus = open.slice(MAX_KEY_SESSIONS - 1);
    return [...all.filter(isOver), ...surplus].map(({ id }) => id);
  }

  #ofKey(keyId: string): BrowserSession[] {
    return [...this.#known.values()].filter((each) => each.keyId === keyId);
  }

  #holderOf({ keyId }: BrowserSession): KeyHolder | undefined {
    return this.#options.keys.find(keyId)?.holder;
  }

  /** 0 without the key. */
  #endOf(session: BrowserSession): number {
    const holder = this.#holderOf(session);
    if (!holder) return 0;
    const ofKey = holder.expiresAt ?? Number.POSITIVE_INFINITY;
    const { createdAt, usedAt } = session;
    return Math.min(createdAt + this.maxMs, usedAt + this.#idleMs, ofKey);
  }

  #learn(session: BrowserSession): void {
    this.#known.set(session.id, session);
    this.#notify(session.id);
  }

  #forget(id: string): void {
    if (this.#known.delete(id)) this.#notify(id);
  }

  #notify(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }
}

function read({ body, id }: StoredResource): BrowserSession {
  return { id, ...sessionBody.parse(JSON.parse(body)) };
}

const TOKEN_BYTES = 32;
const TOKEN_FORM = /^ms_[A-Za-z0-9_-]{43}$/;

/** Random, and stored only as a hash. */
function generateToken(): string {
  return `ms_${randomBytes(TOKEN_BYTES).toString('base64url')}`;
}

/** Also the ID of the session. */
function hashToken(token: string): string {
  return hash('sha256', token, 'base64url');
}
