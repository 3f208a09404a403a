// Opens, reads and ends the session.
import { ApiError, caller } from './calls.ts';
import { type Session, sessionState } from './session.ts';

const PATH = '/v1/session';

/** Reads the session of this browser. @throws UnreachableError, ApiError */
export async function readSession(): Promise<void> {
  try {
    const session = await caller.json<Session>({ path: PATH });
    sessionState.write({ kind: 'open', session });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    sessionState.write({ kind: 'none', why: 'new' });
  }
}

/** @throws ApiError if the platform refuses the key, UnreachableError */
export async function signIn(key: string): Promise<void> {
  await caller.json({ method: 'POST', path: PATH, body: { key }, repeatable: false });
  await readSession();
}

export async function signOut(): Promise<void> {
  await caller.answer({ method: 'DELETE', path: PATH, repeatable: false });
  sessionState.write({ kind: 'none', why: 'signedOut' });
}
