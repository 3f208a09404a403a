import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { Endpoints } from '../../../src/control/endpoints.ts';
import { openSqliteStore } from '../../../src/store/sqlite.ts';

async function openEndpoints() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const clock = new ManualClock();
  const reopen = () => Endpoints.open({ store, clock });
  return { clock, reopen, endpoints: await reopen() };
}

describe('an endpoint', () => {
  it('is there with default settings once it was declared, also after a restart', async () => {
    const { clock, endpoints, reopen } = await openEndpoints();
    expect(endpoints.has('demo')).toBe(false);
    expect(await endpoints.ensureEndpoint('demo')).toMatchObject({
      ...{ id: 'demo', createdAt: clock.now(), inQueue: 0 },
      settings: { executionTimeoutMs: 600_000, maxAttempts: 3, maxQueued: 100_000 },
    });
    expect(endpoints.has('demo')).toBe(true);
    expect((await reopen()).has('demo')).toBe(true);
  });

  it('keeps its settings when it is declared again without any, and its birth always', async () => {
    const { clock, endpoints } = await openEndpoints();
    const { createdAt } = await endpoints.ensureEndpoint('demo', { maxAttempts: 7 });
    await clock.advance(1_000);
    const again = await endpoints.ensureEndpoint('demo');
    expect(again).toMatchObject({ createdAt, settings: { maxAttempts: 7 } });
    const changed = await endpoints.ensureEndpoint('demo', { maxAttempts: 2 });
    expect(changed).toMatchObject({ createdAt, settings: { maxAttempts: 2 } });
    expect(await endpoints.list()).toHaveLength(1);
  });

  it.each(['pods', 'catalog', '', '-a', 'a b', 'a/b', 'x'.repeat(65)])(
    'is refused with the name %j',
    async (id) => {
      const { endpoints } = await openEndpoints();
      await expect(endpoints.ensureEndpoint(id)).rejects.toMatchObject({ code: 'invalid' });
      expect(endpoints.has(id)).toBe(false);
    },
  );

  it('is refused with settings out of range, by path', async () => {
    const { endpoints } = await openEndpoints();
    await expect(endpoints.ensureEndpoint('demo', { maxAttempts: 0 })).rejects.toMatchObject({
      errors: [expect.stringMatching(/^maxAttempts: /)],
    });
  });
});
