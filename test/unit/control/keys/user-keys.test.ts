import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { type KeyGrant, type KeyHolder, Keys } from '../../../../src/control/keys/keys.ts';
import { UserKeys } from '../../../../src/control/keys/user-keys.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import { SCOPES } from '../../../../src/wire/routes/route.ts';
import { errorAt } from '../../../support/answers.ts';
import { NO_NAMES } from '../../../support/no-names.ts';
import { replaceVerb } from '../../../support/replace-verb.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

async function open() {
  const opened = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => opened.close());
  let listings = 0;
  /** Counts the commits that read the keys of all users. */
  const store: Store = {
    ...{ read: opened.read.bind(opened), reclaim: opened.reclaim.bind(opened) },
    write: (operation, options) =>
      opened.write((tx) => {
        const keys = () => {
          listings += 1;
          return tx.keys();
        };
        return operation(replaceVerb(tx, { keys }));
      }, options),
    close: () => opened.close(),
  };
  const clock = new ManualClock();
  const keys = await Keys.open({ store, clock });
  const first = await keys.ensureFirstKeys();
  const operator = keys.authenticate(first?.admin ?? '');
  if (!operator) throw new Error('there is no first key');
  const userKeys = new UserKeys({ keys, clock, endpoints: NO_NAMES });
  const hold = async (grant: Partial<KeyGrant>): Promise<KeyHolder> =>
    (await keys.issue({ name: 'k', scopes: ['admin'], userId: 'ann', ...grant })).holder;
  const reopen = () => Keys.open({ store, clock });
  const page = { userId: undefined, before: undefined, limit: 100 };
  const idsOf = (caller: KeyHolder, userId?: string) =>
    userKeys.list(caller, { ...page, userId }).records.map(({ id }) => id);
  const countListings = () => listings;
  return { clock, countListings, hold, idsOf, keys, operator, page, reopen, userKeys };
}

const toIso = (at: number) => new Date(at).toISOString();

describe('a key that is created with another key', () => {
  it('belongs to the same user, has the requested scopes, and is shown once', async () => {
    const { hold, keys, userKeys } = await open();
    const ann = await hold({});
    const made = await userKeys.issue(ann, { name: 'ci', scopes: ['jobs:write', 'jobs:write'] });
    expect(made).toMatchObject({ name: 'ci', userId: 'ann', scopes: ['jobs:write'] });
    expect(keys.authenticate(made.key)).toMatchObject({ keyId: made.id, userId: 'ann' });
    expect(JSON.stringify(userKeys.find(ann, made.id))).not.toContain(made.key);
  });

  it('cannot have more scopes than that key', async () => {
    const { hold, idsOf, userKeys } = await open();
    const own = await hold({ scopes: ['keys:write', 'jobs:write:a'] });
    const issue = (scopes: string[]) => userKeys.issue(own, { name: 'x', scopes });
    expect((await issue(['jobs:write:a'])).scopes).toEqual(['jobs:write:a']);
    for (const scope of ['jobs:write', 'jobs:write:b', 'jobs:read:a', 'admin', 'admin:a']) {
      await expect(issue(['jobs:write:a', scope])).rejects.toMatchObject({ code: 'forbidden' });
    }
    expect(idsOf(own)).toHaveLength(2);
  });

  it('expires when that key does, unless it has an earlier expiry', async () => {
    const { clock, hold, userKeys } = await open();
    const end = clock.now() + HOUR_MS;
    const own = await hold({ expiresAt: end });
    const issue = (expiresAt?: string | null) =>
      userKeys.issue(own, {
        name: 'x',
        scopes: ['admin'],
        ...(expiresAt !== undefined && { expiresAt }),
      });
    expect((await issue()).expiresAt).toBe(toIso(end));
    expect((await issue(toIso(end - 1))).expiresAt).toBe(toIso(end - 1));
    for (const later of [null, toIso(end + 1)]) {
      await expect(issue(later)).rejects.toMatchObject({ code: 'forbidden' });
    }
  });

  it('has no expiry if that key has none', async () => {
    const { hold, userKeys } = await open();
    expect(
      (await userKeys.issue(await hold({}), { name: 'x', scopes: ['admin'] })).expiresAt,
    ).toBeNull();
  });

  it('is rejected with a past expiry, and with an unknown scope', async () => {
    const { clock, hold, userKeys } = await open();
    const ann = await hold({});
    const past = userKeys.issue(ann, {
      name: 'x',
      scopes: ['admin'],
      expiresAt: toIso(clock.now()),
    });
    await expect(past).rejects.toMatchObject({
      code: 'invalid',
      errors: [errorAt('expiresAt')],
    });
    const unknown = userKeys.issue(ann, { name: 'x', scopes: ['admin', 'root'] });
    await expect(unknown).rejects.toMatchObject({
      code: 'invalid',
      errors: [errorAt('scopes[1]')],
    });
  });

  it('belongs to another user only if the operator asks for it', async () => {
    const { hold, operator, userKeys } = await open();
    const creation = { name: 'x', scopes: ['jobs:read'], userId: 'bob' };
    expect((await userKeys.issue(operator, creation)).userId).toBe('bob');
    const callers = [
      await hold({}),
      await hold({ userId: 'owner', scopes: ['keys:write', 'jobs:read'] }),
      await hold({ userId: 'owner', scopes: ['admin:a', 'jobs:read'] }),
    ];
    for (const caller of callers) {
      await expect(userKeys.issue(caller, creation)).rejects.toMatchObject({ code: 'forbidden' });
    }
  });
});

describe('the keys of a user', () => {
  it('are listed the newest first, page by page, also after a restart', async () => {
    const { clock, hold, page, reopen } = await open();
    const made: string[] = [];
    const ann = await hold({});
    for (let n = 0; n < 4; n++) {
      await clock.advance(1);
      made.unshift((await hold({})).keyId);
    }
    const userKeys = new UserKeys({ keys: await reopen(), clock, endpoints: NO_NAMES });
    const seen: string[] = [];
    for (let before: number | undefined, isLast = false; !isLast; ) {
      const { next, records } = userKeys.list(ann, { ...page, before, limit: 2 });
      seen.push(...records.map(({ id }) => id));
      before = next;
      isLast = next === undefined;
    }
    expect(seen).toEqual([...made, ann.keyId]);
  });

  it('are visible only to the user and the operator', async () => {
    const { hold, idsOf, operator, userKeys } = await open();
    const ann = await hold({});
    const bob = await hold({ userId: 'bob' });
    expect(idsOf(bob)).toEqual([bob.keyId]);
    expect(() => idsOf(bob, 'ann')).toThrow(expect.objectContaining({ code: 'forbidden' }));
    const missing = expect.objectContaining({ code: 'not_found' });
    expect(() => userKeys.find(bob, ann.keyId)).toThrow(missing);
    await expect(userKeys.rotate(bob, ann.keyId, 0)).rejects.toEqual(missing);
    await expect(userKeys.revoke(bob, ann.keyId)).rejects.toEqual(missing);
    expect(idsOf(operator, 'ann')).toEqual([ann.keyId]);
    expect(idsOf(operator)).not.toContain(ann.keyId);
    await userKeys.revoke(operator, ann.keyId);
    expect(idsOf(operator, 'ann')).toEqual([]);
  });

  it('are listed for a week after they have expired', async () => {
    const { clock, hold, idsOf, reopen } = await open();
    const ann = await hold({});
    const short = await hold({ expiresAt: clock.now() + 1 });
    await clock.advance(7 * DAY_MS + 1);
    const other = await hold({});
    expect(idsOf(ann)).toEqual([other.keyId, short.keyId, ann.keyId]);
    await clock.advance(DAY_MS);
    const last = await hold({});
    const left = [last.keyId, other.keyId, ann.keyId];
    expect(idsOf(ann)).toEqual(left);
    const stored = (await reopen()).all().map(({ holder }) => holder.keyId);
    expect(stored).toEqual(expect.arrayContaining(left));
    expect(stored).not.toContain(short.keyId);
  });
});

it('reads no keys of other users at a change of a key', async () => {
  const { countListings, hold, keys, userKeys } = await open();
  const atStart = countListings();
  const ann = await hold({});
  const bob = await hold({ userId: 'bob' });
  const { id } = await userKeys.issue(ann, { name: 'ci', scopes: ['jobs:read'] });
  const next = await userKeys.rotate(ann, id, 60);
  await userKeys.revoke(ann, next.id);
  expect(countListings()).toBe(atStart);
  expect(keys.ofUser('ann').map(({ holder }) => holder.keyId)).toEqual([ann.keyId, id]);
  expect(keys.ofUser('bob').map(({ holder }) => holder.keyId)).toEqual([bob.keyId]);
});

describe('keys that have expired', () => {
  it('are limited to the newest 200 of a user', async () => {
    const { clock, hold, keys, reopen } = await open();
    const bob = await hold({ userId: 'bob', expiresAt: clock.now() + 1 });
    const made: string[] = [];
    const expiresAt = clock.now() + 1;
    for (let count = 0; count < 203; count++) made.push((await hold({ expiresAt })).keyId);
    await clock.advance(1);
    const ann = await hold({});
    for (const known of [keys, await reopen()]) {
      const all = known.all().map(({ holder }) => holder);
      const kept = all.filter(({ userId }) => userId === 'ann').map(({ keyId }) => keyId);
      // Of one millisecond, the store keeps no order.
      expect(new Set(kept)).toEqual(new Set([...made.slice(-200), ann.keyId]));
      expect(all.map(({ keyId }) => keyId)).toContain(bob.keyId);
    }
  });
});

describe('a rotation', () => {
  it('makes a key with the same grant and ends the old one after the grace', async () => {
    const { clock, hold, keys, reopen, userKeys } = await open();
    const ann = await hold({});
    const old = await keys.issue({ name: 'ci', userId: 'ann', scopes: ['jobs:read:a'] });
    const next = await userKeys.rotate(ann, old.holder.keyId, 60);
    expect(next).toMatchObject({
      name: 'ci',
      userId: 'ann',
      scopes: ['jobs:read:a'],
      expiresAt: null,
    });
    expect(next.id).not.toBe(old.holder.keyId);
    await clock.advance(59_999);
    for (const known of [keys, await reopen()]) {
      expect(known.authenticate(old.key)).toBeDefined();
      expect(known.authenticate(next.key)?.keyId).toBe(next.id);
    }
    await clock.advance(1);
    for (const known of [keys, await reopen()]) expect(known.authenticate(old.key)).toBeUndefined();
    expect(keys.authenticate(next.key)).toBeDefined();
  });

  it('removes the old key without a grace', async () => {
    const { hold, idsOf, keys, reopen, userKeys } = await open();
    const ann = await hold({});
    const old = await keys.issue({ name: 'ci', userId: 'ann', scopes: ['worker'] });
    const next = await userKeys.rotate(ann, old.holder.keyId, 0);
    for (const known of [keys, await reopen()]) expect(known.authenticate(old.key)).toBeUndefined();
    expect(idsOf(ann)).toEqual([next.id, ann.keyId]);
  });

  it('does not extend the life of a key', async () => {
    const { clock, hold, keys, userKeys } = await open();
    const end = clock.now() + HOUR_MS;
    const old = await keys.issue({ name: 'x', userId: 'ann', scopes: ['admin'], expiresAt: end });
    const next = await userKeys.rotate(await hold({}), old.holder.keyId, 2 * 3_600);
    expect(next.expiresAt).toBe(toIso(end));
    await clock.advance(HOUR_MS);
    expect(keys.authenticate(old.key)).toBeUndefined();
    expect(keys.authenticate(next.key)).toBeUndefined();
    const again = userKeys.rotate(await hold({}), next.id, 0);
    await expect(again).rejects.toMatchObject({ code: 'conflict' });
  });

  it('is refused for a key with more scopes than the caller’s', async () => {
    const { clock, hold, userKeys } = await open();
    const writer = await hold({ scopes: ['keys:write'] });
    const short = await hold({ expiresAt: clock.now() + HOUR_MS });
    const admin = await hold({});
    for (const caller of [writer, short]) {
      const rotated = userKeys.rotate(caller, admin.keyId, 0);
      await expect(rotated).rejects.toMatchObject({ code: 'forbidden' });
    }
    expect(await userKeys.rotate(short, short.keyId, 0)).toHaveProperty('key');
  });
});

describe('a revocation', () => {
  it('takes effect at once, also after a restart', async () => {
    const { hold, keys, reopen, userKeys } = await open();
    const { holder, key } = await keys.issue({ name: 'x', userId: 'ann', scopes: ['worker'] });
    await userKeys.revoke(await hold({}), holder.keyId);
    for (const known of [keys, await reopen()]) expect(known.authenticate(key)).toBeUndefined();
  });

  it('is refused for a key with more scopes than the caller’s, for each scope', async () => {
    const { clock, hold, idsOf, userKeys } = await open();
    const admin = await hold({});
    const writer = await hold({ scopes: ['keys:write', 'admin:a'] });
    const stronger = SCOPES.filter((scope) => scope !== 'keys:write').flatMap((scope) => [
      scope,
      `${scope}:b`,
    ]);
    for (const scope of stronger) {
      const key = await hold({ scopes: ['keys:write', scope] });
      const revoked = userKeys.revoke(writer, key.keyId);
      await expect(revoked, scope).rejects.toMatchObject({ code: 'forbidden' });
      await userKeys.revoke(admin, key.keyId);
    }
    const lasting = await hold({ scopes: ['keys:write'] });
    const brief = await hold({ scopes: ['keys:write'], expiresAt: clock.now() + HOUR_MS });
    const outlasted = userKeys.revoke(brief, lasting.keyId);
    await expect(outlasted).rejects.toMatchObject({ code: 'forbidden' });
    await userKeys.revoke(brief, brief.keyId);
    expect(idsOf(admin)).toEqual([lasting.keyId, writer.keyId, admin.keyId]);
  });

  it('succeeds for a key with no more scopes than the caller’s, and for any key with admin', async () => {
    const { clock, hold, idsOf, userKeys } = await open();
    const writer = await hold({ scopes: ['keys:write', 'admin:a'] });
    const weaker = await hold({ scopes: ['jobs:write:a', 'keys:write'] });
    await userKeys.revoke(writer, weaker.keyId);
    const admin = await hold({ expiresAt: clock.now() + HOUR_MS });
    const lasting = await hold({});
    await userKeys.revoke(admin, lasting.keyId);
    expect(idsOf(admin)).toEqual([admin.keyId, writer.keyId]);
  });

  it('is a conflict for the last admin key of the operator', async () => {
    const { clock, hold, keys, operator, userKeys } = await open();
    const revoke = (key: KeyHolder) => userKeys.revoke(operator, key.keyId);
    await hold({ userId: 'ann' });
    await hold({ userId: 'owner', scopes: ['admin:a'] });
    const short = await hold({ userId: 'owner', expiresAt: clock.now() + DAY_MS });
    await expect(revoke(operator)).rejects.toMatchObject({ code: 'conflict' });
    expect(keys.all().map(({ holder }) => holder.keyId)).toContain(operator.keyId);
    await hold({ userId: 'owner' });
    await revoke(short);
    await revoke(operator);
  });

  it('keeps one of two keys that are revoked at once', async () => {
    const { hold, keys, operator, userKeys } = await open();
    const other = await hold({ userId: 'owner' });
    const both = [
      userKeys.revoke(operator, operator.keyId),
      userKeys.revoke(operator, other.keyId),
    ];
    const ends = await Promise.allSettled(both);
    expect(ends.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(keys.all().filter(({ holder }) => holder.scopes.has('admin'))).toHaveLength(1);
  });
});
