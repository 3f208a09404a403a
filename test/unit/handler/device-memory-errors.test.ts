// Errors of GPU libraries that say that the device is out of memory, as they word them.
import { describe, expect, it } from 'vitest';
import { isDeviceMemoryError } from '../../../src/handler/device-memory-errors.ts';

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
  it.each(MEMORY)('knows %s', (text) => {
    expect(isDeviceMemoryError(new Error(text))).toBe(true);
    expect(isDeviceMemoryError(text)).toBe(true);
    expect(isDeviceMemoryError(new Error('inference failed', { cause: new Error(text) }))).toBe(
      true,
    );
  });

  it.each(OTHER)('passes over %s', (text) => {
    expect(isDeviceMemoryError(new Error(text))).toBe(false);
  });

  it.each([undefined, null, 7, {}])('passes over %s', (thrown) => {
    expect(isDeviceMemoryError(thrown)).toBe(false);
  });
});
