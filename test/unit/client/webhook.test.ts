// Whether a webhook is from the platform.
import { createHmac } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { type ReceivedWebhook, verifyWebhook, WebhookRefusedError } from '../../../src/client.ts';
import {
  deriveEndpointSecret,
  WebhookSigner,
} from '../../../src/queue/webhooks/webhook-signature.ts';

const SECRET = deriveEndpointSecret('mrw_platform', 'echo');
const NOW = 1_767_225_600_999;
const BODY = '{"id":"job-1","status":"COMPLETED","output":"ä"}';

function receive(changes: Partial<ReceivedWebhook> = {}) {
  const signature = sign([SECRET]);
  return verifyWebhook({ secret: SECRET, body: BODY, signature, now: NOW, ...changes });
}

function sign(secrets: readonly string[]): string {
  const signer = new WebhookSigner(secrets, NOW);
  for (const byte of Buffer.from(BODY)) signer.update(Buffer.of(byte));
  return signer.finish();
}

describe('verifyWebhook', () => {
  it('gives the record of a webhook that was signed with the secret', async () => {
    expect(await receive()).toEqual({ id: 'job-1', status: 'COMPLETED', output: 'ä' });
    expect(await receive({ body: Buffer.from(BODY) })).toMatchObject({ output: 'ä' });
  });

  it('checks HMAC-SHA-256 over the seconds, a dot and the body', async () => {
    const hex = createHmac('sha256', SECRET).update(`1767225600.${BODY}`).digest('hex');
    const signature = `t=1767225600,v1=${hex}`;
    expect(sign([SECRET])).toBe(signature);
    await expect(receive({ signature })).resolves.toBeDefined();
  });

  it('takes any of several signatures, and any of several secrets', async () => {
    const signature = sign(['whs_old', SECRET]);
    await expect(receive({ signature })).resolves.toBeDefined();
    await expect(receive({ secret: ['whs_new', SECRET] })).resolves.toBeDefined();
  });

  it('goes through the body once, however many signatures a stranger sends', async () => {
    const forged = Array.from({ length: 200 }, () => `v1=${'a'.repeat(64)}`).join(',');
    const signing = vi.spyOn(crypto.subtle, 'sign');
    const verifying = vi.spyOn(crypto.subtle, 'verify');
    await expect(receive({ signature: `t=1767225600,${forged}` })).rejects.toThrow('not signed');
    expect(signing.mock.calls.length + verifying.mock.calls.length).toBe(1);
    vi.restoreAllMocks();
  });

  it('refuses a sum that differs in one place only', async () => {
    for (const at of [0, 31, 63]) {
      const [head = '', sum = ''] = sign([SECRET]).split('v1=');
      const digit = sum[at] === '0' ? '1' : '0';
      const signature = `${head}v1=${sum.slice(0, at)}${digit}${sum.slice(at + 1)}`;
      await expect(receive({ signature })).rejects.toThrow('not signed');
    }
  });

  it('passes over signatures of versions that it does not know', async () => {
    const signature = `${sign([SECRET])},v2=abc,x`;
    await expect(receive({ signature })).resolves.toBeDefined();
  });

  const signature = sign([SECRET]);
  const refused: [why: string, changes: Partial<ReceivedWebhook>, message: RegExp][] = [
    ['another secret', { secret: 'whs_other' }, /not signed/],
    ['no secret', { secret: [] }, /not signed/],
    ['another body', { body: `${BODY} ` }, /not signed/],
    [
      'a signature of another time',
      { signature: signature.replace(/t=\d+/, 't=1767225601') },
      /not signed/,
    ],
    ['no signature', { signature: undefined }, /no millrace-signature/],
    ['an empty signature', { signature: '' }, /no millrace-signature/],
    ['a signature without a time', { signature: signature.replace(/t=\d+,/, '') }, /no millrace/],
    ['a signature without a sum', { signature: 't=1767225600' }, /no millrace-signature/],
    ['a short sum', { signature: signature.slice(0, -2) }, /no millrace-signature/],
    ['too great an age', { now: NOW + 301_000 }, /too long ago/],
    ['a time too far ahead', { now: NOW - 302_000 }, /clocks differ/],
    ['too great an age for its receiver', { now: NOW + 2_000, toleranceMs: 1_000 }, /too long/],
  ];
  it.each(refused)('refuses a webhook with %s', async (_, changes, message) => {
    const error = await receive(changes).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(WebhookRefusedError);
    expect(String(error)).toMatch(message);
  });
});

describe('the secret of an endpoint', () => {
  it('is another for each endpoint and each secret of the platform', () => {
    const secrets = [
      deriveEndpointSecret('mrw_a', 'echo'),
      deriveEndpointSecret('mrw_a', 'image'),
      deriveEndpointSecret('mrw_b', 'echo'),
    ];
    expect(new Set(secrets).size).toBe(3);
    for (const secret of secrets) expect(secret).toMatch(/^whs_[\w-]{43}$/);
    expect(deriveEndpointSecret('mrw_a', 'echo')).toBe(secrets[0]);
  });
});
