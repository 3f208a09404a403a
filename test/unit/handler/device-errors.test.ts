// Errors of GPU libraries that say that the device is out of memory or the context is lost, as they word them.
import { ModelCallError, ModelProcessError } from 'millrace/process';
import { describe, expect, it } from 'vitest';
import { concludeThrown, Refusal } from '../../../src/handler/attempt/refusal.ts';
import {
  findContextLoss,
  isDeviceMemoryError,
  judgeContextLoss,
} from '../../../src/handler/device-errors.ts';

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
