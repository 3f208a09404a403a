// Checks what a handler thread posts. Apart from thread-messages.ts, which threads load: they do not need the messages of
// the worker link.
import { FieldFault } from '../../wire/link/fields.ts';
import { attemptOutcome } from '../../wire/link/worker-link.ts';
import type { FromThread, Packet } from './thread-messages.ts';

/**
 * Whether a thread has posted messages. A handler can replace the built-ins of its thread, and with them what the
 * thread writes, so the worker relies on nothing that it has not checked here.
 */
export function isPacketFromThread(packet: unknown): packet is Packet<FromThread> {
  if (!isObject(packet)) return false;
  const { messages, payloads, shared } = packet;
  if (!Array.isArray(messages) || !Array.isArray(payloads)) return false;
  let sharedBytes = 0;
  for (const [index, message] of messages.entries()) {
    const payload: unknown = payloads[index];
    if (isCount(payload)) sharedBytes += payload;
    else if (payload !== undefined && !(payload instanceof Uint8Array)) return false;
    const bytes = payload instanceof Uint8Array ? payload.length : payload;
    if (!isMessage(message, bytes)) return false;
  }
  return sharedBytes === (shared instanceof Uint8Array ? shared.length : 0);
}

/** `bytes`: of the payload. */
function isMessage(message: unknown, bytes = 0): boolean {
  if (!isObject(message)) return false;
  const { config, contextLoss, dropped, event, fillMs, free, number, outcome, received } = message;
  const { sizes, waiting } = message;
  if (number !== undefined && !isCount(number)) return false;
  switch (message['kind']) {
    case 'loaded':
      return isObject(config);
    case 'chunks':
      return isSizes(sizes) && sizes.reduce((sum, size) => sum + size, sizes.length - 1) === bytes;
    case 'log':
      return isCount(dropped);
    case 'end':
      return isOutcome(outcome) && (contextLoss === undefined || typeof contextLoss === 'string');
    case 'capacity':
      return [received, free, waiting, fillMs ?? 0].every(isFigure);
    case 'batch':
      return isBatchEvent(event);
    default:
      return true;
  }
}

/** As the platform checks it, which would refuse the report. */
function isOutcome(value: unknown): boolean {
  try {
    attemptOutcome.read(value);
    return true;
  } catch (error) {
    if (error instanceof FieldFault) return false;
    throw error;
  }
}

function isBatchEvent(event: unknown): boolean {
  if (!isObject(event)) return false;
  const { kind, of, size, waitMs } = event;
  if (kind !== 'started') return (kind === 'split' || kind === 'failed') && isFigure(size);
  return [size, of, waitMs].every(isFigure);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function isFigure(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && isFigure(value);
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.length > 0 && value.every(isCount);
}
