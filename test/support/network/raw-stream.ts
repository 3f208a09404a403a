// A worker's gRPC stream without the link: sends and receives messages as objects, one by one.
import {
  type ChannelCredentials,
  Client,
  type ClientDuplexStream,
  credentials,
  Metadata,
  type StatusObject,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { z } from 'zod';
import { PROTO_OPTIONS, PROTO_PATH, SERVICE_NAME } from '../../../src/wire/link/worker-stream.ts';

const message = z.looseObject({ call: z.number(), kind: z.string() });
type Message = z.infer<typeof message>;

export class RawStream {
  readonly call: ClientDuplexStream<object, object>;
  readonly status: Promise<StatusObject>;
  readonly #client: Client;
  readonly #waiting: ((message: Message) => void)[] = [];
  readonly #received: Message[] = [];

  constructor(
    url: string,
    metadata: Record<string, string>,
    how: ChannelCredentials = credentials.createInsecure(),
  ) {
    const service = loadSync(PROTO_PATH, PROTO_OPTIONS)[SERVICE_NAME];
    const method = service && !('format' in service) ? service['Open'] : undefined;
    if (!method) throw new Error('the service has no such method');
    this.#client = new Client(new URL(url).host, how);
    const sent = new Metadata();
    for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
    const { path, requestSerialize, responseDeserialize } = method;
    this.call = this.#client.makeBidiStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      sent,
    );
    this.call.on('error', () => {});
    this.status = new Promise((resolve) => this.call.once('status', resolve));
    this.call.on('data', (data: object) => {
      const received = message.parse(data);
      const next = this.#waiting.shift();
      if (next) next(received);
      else this.#received.push(received);
    });
  }

  /** Resolves when the stream takes more. */
  send(...messages: object[]): Promise<void> {
    const last = messages.pop() ?? {};
    for (const each of messages) this.call.write(each);
    return new Promise((resolve) => {
      this.call.write(last, () => resolve());
    });
  }

  next(): Promise<Message> {
    const received = this.#received.shift();
    if (received) return Promise.resolve(received);
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }

  async ask(question: object): Promise<Message> {
    await this.send(question);
    return this.next();
  }

  close(): void {
    this.call.cancel();
    this.#client.close();
  }
}
