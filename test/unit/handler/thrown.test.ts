// The description of a thrown value, what it says about the device, and about the next attempt.
import { ModelCallError, ModelProcessError } from 'millrace/process';
import { describe, expect, it } from 'vitest';
import { concludeThrown, Refusal } from '../../../src/handler/attempt/refusal.ts';
import {
  BRAND,
  describeThrown,
  findContextLoss,
  isDeviceMemoryError,
  judgeContextLoss,
  NonRetryableError,
  RetryAfterError,
  retryAdvice,
} from '../../../src/handler/thrown.ts';

/** Without frames. */
function lines(thrown: unknown): string[] {
  const { stack = '' } = describeThrown(thrown);
  return stack.split('\n').filter((line) => !/^\s+at /.test(line));
}

describe('the description of an error', () => {
  it('has the errors of an AggregateError, with their own causes', async () => {
    const refused = new Error('refused', { cause: new Error('socket') });
    const failing = [Promise.reject(refused), Promise.reject('no error')];
    const thrown = await Promise.any(failing).catch((error: unknown) => error);
    expect(describeThrown(thrown)).toMatchObject({
      message: "All promises were rejected: refused; 'no error'",
      type: 'AggregateError',
    });
    expect(lines(thrown)).toEqual([
      'AggregateError: All promises were rejected',
      '    error 1 of 2: Error: refused',
      '    caused by: Error: socket',
      "    error 2 of 2: 'no error'",
    ]);
  });

  it('has the message of the first errors if an AggregateError has none', () => {
    const errors = [1, 2, 3, 4, 5].map((n) => new Error(`no ${n}`));
    expect(describeThrown(new AggregateError(errors)).message).toBe('no 1; no 2; no 3; 2 more');
  });

  it('has both errors of a SuppressedError', () => {
    const thrown = new SuppressedError(new Error('dispose'), new TypeError('run'), 'two errors');
    expect(describeThrown(thrown).message).toBe('two errors: dispose; run');
    expect(lines(thrown).slice(1)).toEqual([
      '    error: Error: dispose',
      '    suppressed: TypeError: run',
    ]);
  });

  it('has a chain of causes', () => {
    const thrown = new Error('a', { cause: new Error('b', { cause: { code: 7 } }) });
    expect(lines(thrown)).toEqual(['Error: a', 'caused by: Error: b', 'caused by: { code: 7 }']);
  });

  it('ends if errors are causes of each other', () => {
    const first = new AggregateError([], 'first');
    first.errors.push(first);
    first.cause = new Error('second', { cause: first });
    expect(lines(first)).toEqual([
      'AggregateError: first',
      '    error 1 of 1: an error from above',
      'caused by: Error: second',
      'caused by: an error from above',
    ]);
  });

  it('is bounded in depth, number and size', () => {
    let deep = new Error('deepest');
    for (let n = 0; n < 10_000; n++) deep = new Error('x', { cause: deep });
    expect(lines(deep)).toHaveLength(18);
    const wide = new AggregateError(
      Array.from({ length: 100_000 }, () => new Error('x')),
      'wide',
    );
    expect(lines(wide).at(-1)).toBe('… (99984 more errors)');
    const large = () => new Error('x'.repeat(1_000_000));
    const { message, stack = '' } = describeThrown(new AggregateError([large(), large()], 'large'));
    expect(message.length).toBeLessThan(2_000);
    expect(stack.length).toBeLessThan(33_000);
    const named = Object.assign(new Error(), { name: 'x'.repeat(1_000_000) });
    expect(describeThrown(named).type?.length).toBeLessThan(600);
  });

  it('never throws, whatever the members of the error do', () => {
    const thrown = new AggregateError([1]);
    Object.defineProperty(thrown, 'errors', {
      get: () => {
        throw new Error('no');
      },
    });
    expect(describeThrown(thrown).message).toMatch(/cannot be described/);
  });
});

const MEMORY = [
  'CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity)',
  'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB',
  'torch.cuda.OutOfMemoryError: Allocation on device',
  'HIP out of memory. Tried to allocate 256.00 MiB',
  'CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported',
  'CUDA_ERROR_OUT_OF_MEMORY: out of memory',
  'cudaErrorMemoryAllocation',
  'CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`',
  'cuDNN error: CUDNN_STATUS_ALLOC_FAILED',
  'hipErrorOutOfMemory (error code: 2)',
  'Non-zero status code returned while running Conv node. Failed to allocate memory for requested buffer of size 4294967296',
  '/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t)',
  'ResourceExhaustedError: OOM when allocating tensor with shape[64,512]',
  'RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes',
];

const OTHER = [
  'CUDA error: an illegal memory access was encountered',
  'the queue is out of memory cards',
  'connect ECONNREFUSED 127.0.0.1:8000',
  'CUBLAS_STATUS_EXECUTION_FAILED',
  '',
];

describe('isDeviceMemoryError', () => {
  it.each(MEMORY)('recognizes %s', (text) => {
    expect(isDeviceMemoryError(new Error(text))).toBe(true);
    expect(isDeviceMemoryError(text)).toBe(true);
    expect(isDeviceMemoryError(new Error('inference failed', { cause: new Error(text) }))).toBe(
      true,
    );
  });

  it.each(OTHER)('ignores %s', (text) => {
    expect(isDeviceMemoryError(new Error(text))).toBe(false);
  });

  it.each([undefined, null, 7, {}])('ignores %s', (thrown) => {
    expect(isDeviceMemoryError(thrown)).toBe(false);
  });
});

const LOST = [
  // PyTorch
  'CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported',
  'torch.AcceleratorError: CUDA error: an illegal memory access was encountered',
  'RuntimeError: CUDA error: unspecified launch failure',
  'CUDA error: uncorrectable ECC error encountered',
  'CUDA error: misaligned address',
  'CUDA error: the launch timed out and was terminated',
  'CUDA driver error: an illegal instruction was encountered',
  'HIP error: an illegal memory access was encountered',
  'HIP error: unspecified launch failure\nHIP kernel errors might be asynchronously reported',
  // CuPy
  'cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered',
  'CUDADriverError: CUDA_ERROR_ASSERT: device-side assert triggered',
  // ONNX Runtime
  '[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Gather node. CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=a ; expr=cudaStreamSynchronize',
  'CUDA failure 719 ; GPU=0',
  // JAX
  "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to load 'loop_fusion' : CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
  // TensorFlow
  'Could not synchronize on CUDA context: CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address',
  'InternalError: failed to query event: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure',
  'hipErrorIllegalAddress (error code: 700)',
];

const NOT_LOST = [
  'CUDA out of memory. Tried to allocate 20.00 MiB',
  'CUDA error: out of memory',
  'CUDA error: invalid argument',
  'CUDA failure 2: out of memory',
  'the door is 700 mm wide; CUDA error 12',
  'cannot answer "what does CUDA error: device-side assert triggered mean?"',
  "unknown command 'CUDA_ERROR_ASSERT'",
  'no rule for `cudaErrorIllegalAddress`',
  'the user says “why CUDA_ERROR_ASSERT?”',
  'an illegal memory access was encountered',
];

describe('concludeThrown', () => {
  it('says that this process has lost its context', () => {
    expect(concludeThrown(new Error('CUDA error: device-side assert triggered'), 1)).toMatchObject({
      contextLoss: 'CUDA error: device-side assert',
      outcome: { kind: 'failed', retry: 'default', error: { code: 'gpu_context_lost' } },
    });
  });

  it('takes words of a refused value for no loss', () => {
    const refusal = new Refusal('input_invalid', 'input.text: CUDA error: misaligned address');
    expect(concludeThrown(refusal, 1)).not.toHaveProperty('contextLoss');
  });
});

describe('judgeContextLoss', () => {
  it.each(LOST)('recognizes %s', (text) => {
    const error = new Error(text);
    const found = { words: expect.any(String), isReplaced: false };
    expect(judgeContextLoss(error)).toEqual(found);
    expect(judgeContextLoss(new Error('inference failed', { cause: error }))).toEqual(found);
    expect(judgeContextLoss(new AggregateError([new Error('a'), error], 'all failed'))).toEqual(
      found,
    );
    expect(findContextLoss(`before\n${text}\nafter`)).toBeDefined();
  });

  it.each([...NOT_LOST, ...MEMORY])('ignores %s', (text) => {
    expect(judgeContextLoss(new Error(text))).toBeUndefined();
  });

  it('ignores values that are no errors, and errors that throw', () => {
    const odd = Object.defineProperty(new Error('a'), 'cause', {
      get: () => {
        throw new Error('b');
      },
    });
    for (const thrown of [undefined, null, 7, {}, odd]) {
      expect(judgeContextLoss(thrown)).toBeUndefined();
    }
  });

  it('terminates for errors that are their own cause or have very many causes', () => {
    const own = new Error('a');
    own.cause = own;
    expect(judgeContextLoss(own)).toBeUndefined();
    const many = Array.from({ length: 1_000 }, (_, index) => new Error(`${index}`));
    expect(judgeContextLoss(new AggregateError(many))).toBeUndefined();
  });

  it('says that the process has been replaced, also for a cause', () => {
    const message = 'CUDA error: device-side assert triggered';
    const raised = { type: 'RuntimeError', message, stack: undefined, retry: 'default' } as const;
    const errors = [
      new ModelCallError(raised, 'context_lost'),
      new ModelProcessError(`the model process died: ${message}`),
    ];
    for (const error of errors) {
      expect(judgeContextLoss(error)?.isReplaced).toBe(true);
      expect(judgeContextLoss(new Error('b', { cause: error }))?.isReplaced).toBe(true);
    }
    expect(judgeContextLoss(new ModelCallError(raised))?.isReplaced).toBe(false);
  });
});

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

it.each([
  [new RetryAfterError(5), 'try again in 5 ms', true],
  [new RetryAfterError(5, 'busy'), 'busy', true],
  [new RetryAfterError(5, 'busy', { counts: false }), 'busy', false],
  [new RetryAfterError(5, { counts: false }), 'try again in 5 ms', false],
])('tells the platform whether the attempt counts: %s', (thrown, message, counts) => {
  const { outcome } = concludeThrown(thrown, 1);
  expect(outcome).toMatchObject({ retry: 'after', retryAfterMs: 5, error: { message } });
  expect(!('retryCounts' in outcome) || outcome.retryCounts).toBe(counts);
});

it('counts the attempt if an earlier version of the package does not say', () => {
  const earlier = Object.assign(new Error(), { [BRAND]: { kind: 'after', ms: 5 } });
  expect(retryAdvice(earlier)).toEqual({ kind: 'after', ms: 5, counts: true });
});

it('counts errors of another copy of the package', () => {
  const foreign = Object.assign(new Error(), { [BRAND]: { kind: 'released', reason: 'suspect' } });
  expect(retryAdvice(foreign)).toEqual({ kind: 'released', reason: 'suspect' });
  const { outcome } = concludeThrown(new NonRetryableError('no'), 1);
  expect(outcome).toMatchObject({ retry: 'never' });
});

it.each([
  [undefined],
  ['text'],
  [{ kind: 'other' }],
  [{ kind: 'after', ms: '1' }],
  [{ kind: 'after', ms: Number.NaN }],
  [{ kind: 'after', ms: -1 }],
])('ignores an advice of %j', (advice) => {
  expect(retryAdvice(Object.assign(new Error(), { [BRAND]: advice }))).toBeUndefined();
});
