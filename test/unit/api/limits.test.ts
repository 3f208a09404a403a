// GET /v1/limits and `millrace limits`.
import { describe, expect, it } from 'vitest';
import { RateGate } from '../../../src/api/limits/rate-limit.ts';
import { readQuotas } from '../../../src/cli/options/limit-options.ts';
import { limitsCommand } from '../../../src/cli/resources/limits.ts';
import { DEFAULT_QUOTAS } from '../../../src/control/limits/quotas.ts';
import { limitsRecord } from '../../../src/wire/resources/limits.ts';
import { type Platform, startPlatform } from '../../support/api/platform.ts';
import { catchPrinted } from '../../support/runs/verb-run.ts';

async function readLimits({ call }: Platform, authorization?: string) {
  const response = await call('/v1/limits', authorization ? { headers: { authorization } } : {});
  expect(response.status).toBe(200);
  return limitsRecord.parse(await response.json());
}

describe('the limits of a user', () => {
  it('count what the user has, in the names of serve --quota', async () => {
    const quotas = { ...DEFAULT_QUOTAS, templates: 7, recordBytes: 2_048 };
    const platform = await startPlatform({ quotas });
    await platform.post('/v1/templates', { name: 't', image: 'i' });
    const { quotas: shown, rates, userId } = await readLimits(platform);
    expect({ userId, rates }).toEqual({ userId: 'owner', rates: [] });
    const named = new Map(shown.map(({ name, ...rest }) => [name, rest]));
    expect(named.get('templates')).toEqual({ of: 'user', limit: 7, used: 1 });
    expect(named.get('endpoints')).toEqual({ of: 'user', limit: 100, used: 1 });
    expect(named.get('keys')).toEqual({ of: 'user', limit: 200, used: 2 });
    expect(named.get('recordKb')).toEqual({ of: 'record', limit: 2, used: null });
    expect(named.get('workersMax')).toEqual({ of: 'endpoint', limit: 100, used: null });
    expect(named.size).toBe(Object.keys(DEFAULT_QUOTAS).length);
    expect(() => readQuotas([...named.keys()].map((name) => `${name}=1`).join(','))).not.toThrow();
  });

  it('are those of the caller, whatever the scopes of the key', async () => {
    const platform = await startPlatform();
    const { key } = await platform.keys.issue({ name: 'k', scopes: ['worker'], userId: 'ada' });
    const { quotas, userId } = await readLimits(platform, key);
    expect(userId).toBe('ada');
    expect(quotas.find(({ name }) => name === 'endpoints')?.used).toBe(0);
    expect(quotas.find(({ name }) => name === 'keys')?.used).toBe(1);
    expect((await platform.call('/v1/limits', { headers: { authorization: 'x' } })).status).toBe(
      401,
    );
  });

  it('count calls in each limited window, this one included', async () => {
    const rateGate = new RateGate({ minute: 5, day: 50 });
    const platform = await startPlatform({ server: { rateGate } });
    await readLimits(platform);
    const { at, rates } = await readLimits(platform);
    expect(rates).toMatchObject([
      { window: 'minute', limit: 5, used: 2 },
      { window: 'day', limit: 50, used: 2 },
    ]);
    for (const { endsAt } of rates) expect(endsAt).toBeGreaterThan(at);
  });

  it('are printed as a table and as JSON', async () => {
    const rateGate = new RateGate({ minute: 5 });
    const { admin, url } = await startPlatform({ server: { rateGate } });
    const print = async (...args: string[]) => {
      return catchPrinted(() => limitsCommand.run([...args, '--url', url, '--key', admin]));
    };
    const table = await print();
    expect(table).toMatch(/^LIMIT +USED +AT MOST +NOTE\ncalls per minute +1 +5 +for \d+ s more\n/);
    expect(table).toMatch(/\nworkersMax +- +100 +each endpoint\n/);
    expect(limitsRecord.parse(JSON.parse(await print('--json'))).rates[0]?.used).toBe(2);
  });
});
