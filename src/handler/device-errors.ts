// Recognizes two kinds of device errors by the texts of CUDA, ROCm and their frameworks: the device is out of memory,
// or the process has lost its device context and must be replaced.
import { type RetryAdvice, retryAdvice } from './retry-errors.ts';
import { describeThrown } from './thrown.ts';

const MEMORY_TEXTS: readonly RegExp[] = [
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

/** Errors after which every device call of the process fails. */
const CONTEXT_TEXTS: readonly RegExp[] = [
  // PyTorch: "CUDA error: device-side assert triggered"; ONNX Runtime: "CUDA failure 700: an illegal memory access …".
  /\b(?:CUDA|HIP|ROCm)\b[^\n]{0,80}?\b(?:device-side assert|an illegal memory access|an illegal instruction|unspecified launch failure|hardware stack error|misaligned address|operation not supported on global\/shared address space|invalid program counter|uncorrectable (?:ECC|NVLink) error|the launch timed out and was terminated|context is destroyed|invalid access of peer GPU memory)/i,
  /\bCUDA (?:runtime |driver )?(?:error|failure)(?: code)?[ :(=]{1,3}(?:214|220|70[029]|71[04-9]|72[12])\b/i,
  // The names of the driver and the runtime, which CuPy, JAX and TensorFlow print, and those of HIP.
  /\bCUDA_ERROR_(?:ASSERT|CONTAINED|CONTEXT_IS_DESTROYED|ECC_UNCORRECTABLE|HARDWARE_STACK_ERROR|ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|INVALID_ADDRESS_SPACE|INVALID_PC|LAUNCH_FAILED|LAUNCH_TIMEOUT|MISALIGNED_ADDRESS|MPS_CLIENT_TERMINATED|NVLINK_UNCORRECTABLE|TENSOR_MEMORY_LEAK)\b/,
  /\bcudaError(?:Assert|Contained|ContextIsDestroyed|DeviceUninitialized|ECCUncorrectable|HardwareStackError|IllegalAddress|IllegalInstruction|InvalidAddressSpace|InvalidPc|LaunchFailure|LaunchTimeout|MisalignedAddress|MpsClientTerminated|NvlinkUncorrectable|TensorMemoryLeak)\b/,
  /\bhipError(?:Assert|ContextIsDestroyed|ECCNotCorrectable|IllegalAddress|LaunchFailure|LaunchTimeOut)\b/,
];

/** Kinds of advice of errors that say that a process of the handler has ended. */
const ENDS_PROCESS: ReadonlySet<RetryAdvice['kind']> = new Set([
  'context_lost',
  'crashed',
  'released',
]);

/** Characters that are read of a text. */
const MAX_CHARS = 65_536;
/** Errors of one thrown value that are read: itself, its causes, and the errors of an AggregateError. */
const MAX_ERRORS = 16;

/** The error says that the device had too little memory. Never throws. */
export function isDeviceMemoryError(thrown: unknown): boolean {
  const { message, stack = '', type = '' } = describeThrown(thrown);
  const text = `${type}: ${message}\n${stack}`;
  for (let index = 0; index < MEMORY_TEXTS.length; index += 1) {
    if (MEMORY_TEXTS[index]?.test(text)) return true;
  }
  return false;
}

/**
 * Returns the words that show a lost device context, or undefined. Quoted words do not count, because they may come
 * from a job's input.
 */
export function findContextLoss(text: string): string | undefined {
  for (const line of text.slice(0, MAX_CHARS).split('\n')) {
    for (const pattern of CONTEXT_TEXTS) {
      const found = pattern.exec(line);
      if (found && !isQuoted(line.slice(0, found.index))) return found[0];
    }
  }
  return undefined;
}

/** A quotation is open at the end of the text. */
function isQuoted(before: string): boolean {
  const isOdd = (mark: string) => before.split(mark).length % 2 === 0;
  const isOpen = (start: string, end: string) =>
    before.lastIndexOf(start) > before.lastIndexOf(end);
  return isOdd('"') || isOdd('`') || before.endsWith("'") || isOpen('“', '”') || isOpen('«', '»');
}

export interface ContextLoss {
  words: string;
  /** The context belonged to a model process that has ended since. */
  isReplaced: boolean;
}

/** Checks the error, its causes and the errors of an AggregateError. Never throws. */
export function judgeContextLoss(thrown: unknown): ContextLoss | undefined {
  let words: string | undefined;
  let isReplaced = false;
  for (const error of listErrors(thrown)) {
    const { message, stack = '', type = '' } = describeThrown(error);
    words ??= findContextLoss(`${type}: ${message}\n${stack}`);
    const advice = retryAdvice(error)?.kind;
    if (advice && ENDS_PROCESS.has(advice)) isReplaced = true;
  }
  return words === undefined ? undefined : { words, isReplaced };
}

function listErrors(thrown: unknown): unknown[] {
  const errors: unknown[] = [thrown];
  try {
    for (let index = 0; index < errors.length && errors.length < MAX_ERRORS; index += 1) {
      const error = errors[index];
      if (!(error instanceof Error)) continue;
      const inner: unknown[] = 'errors' in error && Array.isArray(error.errors) ? error.errors : [];
      for (const each of [error.cause, ...inner.slice(0, MAX_ERRORS)]) {
        if (each !== undefined && !errors.includes(each)) errors.push(each);
      }
    }
  } catch {
    // A getter of the error threw.
  }
  return errors.slice(0, MAX_ERRORS);
}
