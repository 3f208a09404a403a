// Whether a webhook is from the platform.
import { createHmac } from 'node:crypto';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';
import { describe, expect, it, vi } from 'vitest';
import { type ReceivedWebhook, verifyWebhook, WebhookRefusedError } from '../../../src/client.ts';
import { deriveEndpointSecret, WebhookSigner } from '../../../src/queue/webhooks/webhook-sender.ts';

const PLATFORM_SECRET = 'mrw_platform';
const SECRET = deriveEndpointSecret(PLATFORM_SECRET, 'echo');
const OTHER = deriveEndpointSecret('mrw_other', 'echo');
const KEY = Buffer.from(SECRET.slice('whsec_'.length), 'base64');
const NOW = 1_767_225_600_999;
const BODY = '{"id":"job-1","status":"COMPLETED","output":"ä"}';

interface Changes extends Partial<Omit<ReceivedWebhook, 'headers'>> {
  headers?: Record<string, string | undefined>;
}

function receive({ headers, ...changes }: Changes = {}) {
  const signed = { ...sign([PLATFORM_SECRET]), ...headers };
  return verifyWebhook({ secret: SECRET, body: BODY, headers: signed, now: NOW, ...changes });
}

function sign(secrets: readonly string[], now = NOW): Record<string, string> {
  const signer = new WebhookSigner(secrets, { id: 'd-1', endpointId: 'echo', now });
  for (const byte of Buffer.from(BODY)) signer.update(Buffer.of(byte));
  return signer.finish();
}

const SIGNATURE = sign([PLATFORM_SECRET])['webhook-signature'] ?? '';

describe('verifyWebhook', () => {
  it('returns the record of a webhook that was signed with the secret', async () => {
    expect(await receive()).toEqual({ id: 'job-1', status: 'COMPLETED', output: 'ä' });
    expect(await receive({ body: Buffer.from(BODY) })).toMatchObject({ output: 'ä' });
  });

  it('reads the headers of a fetch Request', async () => {
    const headers = new Headers(sign([PLATFORM_SECRET]));
    const received = { secret: SECRET, body: BODY, headers, now: NOW };
    expect(await verifyWebhook(received)).toMatchObject({ id: 'job-1' });
  });

  it('checks HMAC-SHA-256 over the ID, the seconds and the body', async () => {
    const sum = createHmac('sha256', KEY).update(`d-1.1767225600.${BODY}`).digest('base64');
    expect(sign([PLATFORM_SECRET])).toMatchObject({
      'webhook-id': 'd-1',
      'webhook-timestamp': '1767225600',
      'webhook-signature': `v1,${sum}`,
    });
  });

  it('accepts any of several signatures, and any of several secrets', async () => {
    await expect(receive({ headers: sign(['mrw_old', PLATFORM_SECRET]) })).resolves.toBeDefined();
    await expect(receive({ secret: [OTHER, SECRET] })).resolves.toBeDefined();
  });

  it('signs the body once, for any number of forged signatures', async () => {
    const forged = Array.from({ length: 200 }, () => `v1,${'a'.repeat(43)}=`).join(' ');
    const signing = vi.spyOn(crypto.subtle, 'sign');
    const verifying = vi.spyOn(crypto.subtle, 'verify');
    await expect(receive({ headers: { 'webhook-signature': forged } })).rejects.toThrow(
      WebhookRefusedError,
    );
    expect(signing.mock.calls.length + verifying.mock.calls.length).toBe(1);
    vi.restoreAllMocks();
  });

  it('refuses a signature that differs in one character', async () => {
    for (const at of [3, 20, 44]) {
      const digit = SIGNATURE[at] === 'A' ? 'B' : 'A';
      const forged = SIGNATURE.slice(0, at) + digit + SIGNATURE.slice(at + 1);
      await expect(receive({ headers: { 'webhook-signature': forged } })).rejects.toThrow(
        WebhookRefusedError,
      );
    }
  });

  it('ignores signatures of unknown versions', async () => {
    const headers = { 'webhook-signature': `v1a,x ${SIGNATURE} v2,abc` };
    await expect(receive({ headers })).resolves.toBeDefined();
  });

  const refused: [why: string, changes: Changes, named?: string][] = [
    ['another secret', { secret: OTHER }],
    ['no secret', { secret: [] }],
    ['another body', { body: `${BODY} ` }],
    ['a signature of another time', { headers: { 'webhook-timestamp': '1767225601' } }],
    ['a signature of another delivery', { headers: { 'webhook-id': 'd-2' } }],
    ['no signature', { headers: { 'webhook-signature': undefined } }, 'webhook-signature'],
    ['an empty signature', { headers: { 'webhook-signature': '' } }, 'webhook-signature'],
    ['no time', { headers: { 'webhook-timestamp': undefined } }, 'webhook-timestamp'],
    ['no id', { headers: { 'webhook-id': undefined } }, 'webhook-id'],
    ['a time in words', { headers: { 'webhook-timestamp': 'now' } }, 'webhook-timestamp'],
    [
      'a short sum',
      { headers: { 'webhook-signature': SIGNATURE.slice(0, -2) } },
      'webhook-signature',
    ],
    ['too great an age', { now: NOW + 301_000 }],
    ['a time too far ahead', { now: NOW - 302_000 }],
    ['too great an age for its receiver', { now: NOW + 2_000, toleranceMs: 1_000 }],
  ];
  it.each(refused)('refuses a webhook with %s', async (_, changes, named = '') => {
    const error = await receive(changes).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(WebhookRefusedError);
    expect(String(error)).toContain(named);
  });

  it('throws a TypeError for an invalid secret', async () => {
    await expect(receive({ secret: 'whsec_short' })).rejects.toThrow(TypeError);
  });
});

describe('other receivers', () => {
  it('verify a webhook with the library of Standard Webhooks', () => {
    const headers = sign([PLATFORM_SECRET], Date.now());
    expect(new Webhook(SECRET).verify(BODY, headers)).toMatchObject({ id: 'job-1' });
    expect(() => new Webhook(OTHER).verify(BODY, headers)).toThrow(WebhookVerificationError);
  });
});

describe('the secret of an endpoint', () => {
  it('differs for each endpoint and each secret of the platform', () => {
    const secrets = [
      deriveEndpointSecret('mrw_a', 'echo'),
      deriveEndpointSecret('mrw_a', 'image'),
      deriveEndpointSecret('mrw_b', 'echo'),
    ];
    expect(new Set(secrets).size).toBe(3);
    for (const secret of secrets) expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(deriveEndpointSecret('mrw_a', 'echo')).toBe(secrets[0]);
  });
});
