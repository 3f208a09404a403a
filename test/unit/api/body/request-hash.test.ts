import { hash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { hashJson } from '../../../../src/api/body/request-hash.ts';

describe('the hash of a submission', () => {
  it('lists what earlier versions stored: of the bytes, and of the JSON with its key', () => {
    const body = Buffer.from('{ "input": {"b":1,"a":2}, "idempotencyKey": "k" }');
    const { listEarlier, requestHash } = hashJson(body, body.subarray(11, 24));
    const sorted = '{"idempotencyKey":"k","input":{"a":2,"b":1}}';
    const texts = [body.toString(), sorted];
    expect(listEarlier()).toEqual(texts.map((text) => hash('sha256', text, 'base64url')));
    expect(requestHash).toBe(hash('sha256', '{"input":{"a":2,"b":1}}', 'base64url'));
  });
});
