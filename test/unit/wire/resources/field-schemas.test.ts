import { describe, expect, it } from 'vitest';
import { runRequest } from '../../../../src/wire/job/job-schemas.ts';
import { endpointCreation } from '../../../../src/wire/resources/endpoint.ts';
import { resourceName } from '../../../../src/wire/resources/field-schemas.ts';
import { keyCreation } from '../../../../src/wire/resources/key.ts';

describe('a name', () => {
  it.each(['a', 'My endpoint', '大文字 🚀', 'x'.repeat(200)])('may be %s', (name) => {
    expect(resourceName.safeParse(name).success).toBe(true);
  });

  it.each([
    ['empty', ''],
    ['too long', 'x'.repeat(201)],
    ['with a leading space', ' a'],
    ['with a trailing no-break space', 'a\u00a0'],
    ['with two lines', 'a\nb'],
    ['with an escape sequence', 'a\u001b[31mb'],
    ['with a C1 control character', 'a\u009bb'],
    ['with half a surrogate pair', 'a\ud800b'],
  ])('is refused: %s', (_what, name) => {
    expect(resourceName.safeParse(name).success).toBe(false);
    expect(keyCreation.safeParse({ name, scopes: ['jobs:read'] }).success).toBe(false);
    expect(endpointCreation.safeParse({ name, templateId: 't' }).success).toBe(false);
  });
});

describe('an idempotency key', () => {
  it('may not contain half a surrogate pair, because two keys would be stored as one', () => {
    const { error } = runRequest.safeParse({ input: {}, idempotencyKey: 'a\ud800' });
    expect(error?.issues).toMatchObject([{ path: ['idempotencyKey'] }]);
  });
});

describe('the GPU types of an endpoint', () => {
  it('may not contain duplicates', () => {
    const creation = { name: 'e', templateId: 't', gpuTypeIds: ['a', 'b', 'a'] };
    const { error } = endpointCreation.safeParse(creation);
    expect(error?.issues).toMatchObject([{ path: ['gpuTypeIds'] }]);
  });
});
