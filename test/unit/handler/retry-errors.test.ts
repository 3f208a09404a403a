// What errors say about the next attempt, and the outcome of an attempt that throws them.
import { ModelProcessError } from 'millrace/process';
import { describe, expect, it } from 'vitest';
import { concludeThrown } from '../../../src/handler/attempt/refusal.ts';
import { BRAND, NonRetryableError, retryAdvice } from '../../../src/handler/retry-errors.ts';

describe('an attempt whose model process died', () => {
  it('fails with a code of its own if its job is to blame', () => {
    expect(concludeThrown(new ModelProcessError('it died', 'culprit'), 5).outcome).toMatchObject({
      kind: 'failed',
      retry: 'default',
      error: { code: 'model_process_crashed', type: 'ModelProcessError', message: 'it died' },
    });
  });

  it.each(['suspect', 'neighbour'] as const)('is released as a %s', (blame) => {
    const { outcome } = concludeThrown(new ModelProcessError('it died', blame), 5);
    expect(outcome).toEqual({ kind: 'released', reason: blame });
  });
});

it('errors of another copy of the package count', () => {
  const foreign = Object.assign(new Error(), { [BRAND]: { kind: 'released', reason: 'suspect' } });
  expect(retryAdvice(foreign)).toEqual({ kind: 'released', reason: 'suspect' });
  const { outcome } = concludeThrown(new NonRetryableError('no'), 1);
  expect(outcome).toMatchObject({ retry: 'never' });
});

it.each([[undefined], ['text'], [{ kind: 'other' }], [{ kind: 'after', ms: '1' }]])(
  'an advice of %j is none',
  (advice) => {
    expect(retryAdvice(Object.assign(new Error(), { [BRAND]: advice }))).toBeUndefined();
  },
);
