// Bounds a request's head: path, query and headers.
import type { IncomingMessage } from 'node:http';
import { ProblemError } from '../../wire/problem.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { HttpBounds } from './bounds.ts';

export type HeadBounds = Pick<HttpBounds, 'maxTargetBytes' | 'maxHeaderBytes'>;

/** `: ` and the line break. */
const HEADER_FRAME_BYTES = 4;

export interface Head {
  url: string;
  headerBytes: number;
}

export function measureHead({ rawHeaders, url = '' }: Pick<IncomingMessage, 'rawHeaders' | 'url'>) {
  let headerBytes = (rawHeaders.length / 2) * HEADER_FRAME_BYTES;
  for (const text of rawHeaders) headerBytes += text.length;
  return { url, headerBytes };
}

/** Returns why the request is rejected, or undefined. */
export function findExcess(
  { headerBytes, url }: Head,
  { maxHeaderBytes, maxTargetBytes }: HeadBounds,
): ProblemError | undefined {
  // RunPod's workers name all their jobs in the query of a ping.
  const maxBytes = url.startsWith(RUNPOD_BASE) ? maxHeaderBytes : maxTargetBytes;
  if (url.length > maxBytes) return refuseTarget(maxBytes);
  return headerBytes > maxHeaderBytes ? refuseHeaders(maxHeaderBytes) : undefined;
}

/** For a head that Node has stopped reading. `packet`: the last data received. */
export function describeOverflow(
  packet: unknown,
  { maxHeaderBytes, maxTargetBytes }: HeadBounds,
): ProblemError {
  if (!Buffer.isBuffer(packet)) return refuseHeaders(maxHeaderBytes);
  const isStart = /^[A-Z-]+ /.test(packet.toString('latin1', 0, 32));
  const lineEnd = packet.indexOf('\r\n');
  const isLong = isStart && (lineEnd < 0 || lineEnd > maxTargetBytes);
  return isLong ? refuseTarget(maxTargetBytes) : refuseHeaders(maxHeaderBytes);
}

function refuseTarget(maxBytes: number): ProblemError {
  return new ProblemError('target_too_long', `Path and query are longer than ${maxBytes} bytes.`);
}

function refuseHeaders(maxBytes: number): ProblemError {
  return new ProblemError('headers_too_large', `The headers are larger than ${maxBytes} bytes.`);
}
