// Recognises errors that say that a device, such as a GPU, is out of memory: by the texts of CUDA, ROCm,
// PyTorch, ONNX Runtime, TensorFlow and JAX, in the error or in its causes.
import { describeThrown } from './thrown.ts';

const TEXTS: readonly RegExp[] = [
  // PyTorch: "CUDA out of memory. Tried to allocate …", "HIP out of memory"; CUDA: "CUDA error: out of memory".
  /\b(?:CUDA|HIP|ROCm|XPU|MPS)\b[^\n]{0,80}\bout of memory\b/i,
  /\b(?:torch\.)?(?:cuda\.)?OutOfMemoryError\b/,
  // CUDA's driver and runtime, its libraries, and their ROCm counterparts.
  /\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b/,
  /\bCU(?:BLAS|DNN|FFT|SPARSE|SOLVER)_(?:STATUS_)?(?:INTERNAL_ERROR_)?(?:DEVICE_)?(?:ALLOC(?:ATION)?_FAILED)\b/,
  /\bhipErrorOutOfMemory\b|\bhipErrorMemoryAllocation\b|\bHSA_STATUS_ERROR_OUT_OF_RESOURCES\b/,
  // ONNX Runtime: "Failed to allocate memory for requested buffer of size …", "BFCArena::AllocateRawInternal".
  /\bFailed to allocate memory for requested buffer of size\b|\bBFCArena::AllocateRawInternal\b/,
  // TensorFlow: "OOM when allocating tensor"; JAX: "RESOURCE_EXHAUSTED: Out of memory".
  /\bOOM when allocating tensor\b|\bRESOURCE_EXHAUSTED: Out of memory\b/i,
];

/** Whether the device had too little memory. Never throws, whatever was thrown. */
export function isDeviceMemoryError(thrown: unknown): boolean {
  const { message, stack = '', type = '' } = describeThrown(thrown);
  const text = `${type}: ${message}\n${stack}`;
  for (let index = 0; index < TEXTS.length; index += 1) {
    if (TEXTS[index]?.test(text)) return true;
  }
  return false;
}
