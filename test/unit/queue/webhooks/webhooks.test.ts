// What happens to a delivery after an attempt.
import { describe, expect, it } from 'vitest';
import {
  DEFAULT_WEBHOOK_SETTINGS,
  decideAfterAttempt,
  isTooOld,
  nameReceiver,
  type SendAttempt,
} from '../../../../src/queue/webhooks/webhooks.ts';
import { makeDelivery } from '../../../support/store/stored-jobs.ts';

const settings = DEFAULT_WEBHOOK_SETTINGS;
const moment = { now: 10_000, ranMs: 500, random: () => 0.5, settings };
const failed: SendAttempt = { result: '5xx', detail: 'the receiver answered 500' };
const first = makeDelivery({ id: 'd', createdAt: 10_000, platformRanMs: 500, nextAt: 10_000 });

describe('an attempt', () => {
  it('ends the delivery if it succeeds', () => {
    const success: SendAttempt = { result: '2xx', detail: '' };
    expect(decideAfterAttempt(first, success, moment)).toEqual({ kind: 'delivered' });
  });

  it.each(['3xx', '4xx', '5xx', 'timeout', 'refused', 'unreachable'] as const)(
    'is followed by another if it ended with %s',
    (result) => {
      expect(decideAfterAttempt(first, { result, detail: '' }, moment)).toEqual({
        kind: 'postponed',
        delivery: { ...first, attempts: 1, nextAt: 15_000 },
      });
    },
  );

  it('is repeated after waits that double up to an hour, then no more', () => {
    const waits: number[] = [];
    let delivery = first;
    let now = first.createdAt;
    for (;;) {
      const after = decideAfterAttempt(delivery, failed, { ...moment, now });
      if (after.kind !== 'postponed') {
        expect(after).toEqual({ kind: 'given_up', reason: 'the receiver answered 500' });
        break;
      }
      waits.push((after.delivery.nextAt - now) / 1_000);
      delivery = after.delivery;
      now = delivery.nextAt;
    }
    expect(waits).toEqual([5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600]);
  });

  it.each([
    [0, 14_000],
    [0.999_999, 16_000],
  ])('is repeated at a time with random jitter: %d', (random, nextAt) => {
    const after = decideAfterAttempt(first, failed, { ...moment, random: () => random });
    expect(after).toMatchObject({ delivery: { nextAt } });
  });

  it.each([
    ['longer than its own wait', 60_000, 70_000],
    ['shorter than its own wait', 1_000, 15_000],
    ['longer than an hour', 90_000_000, 3_610_000],
  ])('is repeated when the receiver asks for it, if that is %s', (_, retryAfterMs, at) => {
    const after = decideAfterAttempt(first, { ...failed, retryAfterMs }, moment);
    expect(after).toMatchObject({ delivery: { nextAt: at } });
  });

  it('is the last if the receiver refuses all deliveries', () => {
    const gone: SendAttempt = { result: '4xx', detail: 'the receiver answered 410', isFinal: true };
    expect(decideAfterAttempt(first, gone, moment)).toEqual({
      kind: 'given_up',
      reason: 'the receiver answered 410',
    });
  });

  it('is the last when the next would come too late', () => {
    const ranMs = first.platformRanMs + settings.maxAgeMs - 1_000;
    expect(decideAfterAttempt(first, failed, { ...moment, ranMs })).toMatchObject({
      kind: 'given_up',
    });
  });
});

describe('a delivery', () => {
  it('is too old after a day of platform run time', () => {
    expect(isTooOld(first, first.platformRanMs + 86_400_000, settings)).toBe(false);
    expect(isTooOld(first, first.platformRanMs + 86_400_001, settings)).toBe(true);
  });

  it.each([
    ['https://example.com/a?b', 'example.com'],
    ['http://Example.COM:80/', 'example.com'],
    ['http://[::1]:8080/', '[::1]:8080'],
  ])('belongs for %s to the receiver %s', (url, receiver) => {
    expect(nameReceiver(url)).toBe(receiver);
  });
});
