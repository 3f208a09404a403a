// Clients over real sockets that send and read as slowly as a test says.
import { connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { ENDPOINT, type Platform } from './platform.ts';

export const MB = 1_048_576;

export interface Client {
  socket: Socket;
  /** Everything answered so far. */
  text: () => string;
  closed: Promise<unknown>;
}

export function openClient({ port }: Platform): Client {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  let text = '';
  socket.on('data', (data) => {
    text += data.toString('latin1');
  });
  socket.on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  return { socket, text: () => text, closed };
}

interface HeadOptions {
  headers?: string[];
  bytes?: number;
}

export function writeHead(platform: Platform, { bytes, headers = [] }: HeadOptions): string {
  return [
    `POST /v2/${ENDPOINT}/runsync?wait=1000 HTTP/1.1`,
    'Host: x',
    `Authorization: ${platform.admin}`,
    'Content-Type: application/json',
    ...(bytes === undefined ? [] : [`Content-Length: ${bytes}`]),
    ...headers,
    '\r\n',
  ].join('\r\n');
}
