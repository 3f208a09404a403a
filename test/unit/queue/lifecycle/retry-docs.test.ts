// docs/retries.md shows waits that the platform really makes.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { completeRetry, decideRetry } from '../../../../src/queue/lifecycle/retry.ts';
import { isRetryPolicy } from '../../../../src/wire/job/retry-policy.ts';

const doc = readFileSync(new URL('../../../../docs/retries.md', import.meta.url), 'utf8');
const rows = [...doc.matchAll(/^\| `(\{.*\})` \| ([\d, ]+) \|$/gm)].map(
  ([, policy = '', waits = '']) => [policy, waits.split(', ').map(Number)] as const,
);

it('has rows to check', () => expect(rows.length).toBeGreaterThan(3));

it.each(rows)('has the waits of %s', (json, waits) => {
  const own: unknown = JSON.parse(json);
  if (!isRetryPolicy(own)) throw new Error(json);
  const policy = completeRetry({ retry: { own }, maxAttempts: 100 });
  const decided = waits.map((_, index) =>
    decideRetry(policy, {
      ...{ code: 'handler_error', wish: { kind: 'default' }, failures: index + 1 },
      ...{ now: 0, firstStartedAt: 0, expiresAt: 1, isAtOnce: false, random: () => 0.5 },
    }),
  );
  expect(decided).toEqual(waits.map((waitMs) => ({ isRetried: true, waitMs, counts: true })));
});
