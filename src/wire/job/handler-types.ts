// Types of a handler's inputs, outputs and chunks, derived from the type of the handler or of its module. For
// clients and for tests of handlers. They depend on shapes only, so that a client needs no type of the handler API.
import type { Metrics } from '../chunk/chunk.ts';

/**
 * What a client sends as `input`: the input of the handler's schema, or else the type of `job.input`. `Fallback` if
 * neither is known.
 */
export type InputOf<Handler, Fallback = object> = Known<
  SchemaType<Handler, 'input', 'input'>,
  Known<JobInput<RunOf<Handler>>, Fallback>
>;

/**
 * What the job's record has as `output`, as JSON makes it: of a stream without a returned value, the array of its
 * chunks. A stream of more than 20 MB has none.
 */
export type OutputOf<Handler, Fallback = unknown> = Known<
  Jsonify<
    IsStream<Result<Handler>> extends true
      ? StreamOutput<Returned<Result<Handler>>, Handler>
      : Typed<Handler, SingleOutput<Result<Handler>>>
  >,
  Fallback
>;

/** What a chunk of the handler's stream has as `output`, as JSON makes it. */
export type ChunkOf<Handler, Fallback = unknown> = Known<
  Jsonify<Typed<Handler, ChunkOutput<Yielded<Result<Handler>>>>>,
  Fallback
>;

// --- handlers ----------------------------------------------------------------------------------

/** Of a module its default export. */
type MainOf<Handler> = Handler extends { readonly default: infer Main } ? Main : Handler;
type RunOf<Handler> = MainOf<Handler> extends { readonly run: infer Run } ? Run : MainOf<Handler>;

/** A batch handler gets several jobs. */
type JobInput<Run> = Run extends (first: infer First, ctx: never) => unknown
  ? InputMember<First extends readonly (infer One)[] ? One : First>
  : unknown;
type InputMember<Job> = Job extends { readonly input: infer Input } ? Input : unknown;

type Result<Handler> =
  RunOf<Handler> extends (...parameters: never) => infer Result
    ? MainOf<Handler> extends { readonly batch: unknown }
      ? OfOneJob<Awaited<Result>>
      : Awaited<Result>
    : unknown;

/** Of the results of a batch, that of one job. */
type OfOneJob<Batch> = Batch extends readonly (infer One)[] ? Exclude<One, undefined> : Batch;

// --- results -----------------------------------------------------------------------------------

type IsStream<Produced> = unknown extends Produced
  ? false
  : [Produced] extends [AsyncIterable<unknown> | Generator<unknown, unknown, never>]
    ? true
    : false;

type Yielded<Produced> = unknown extends Produced
  ? unknown
  : Produced extends AsyncIterable<infer Value>
    ? Value
    : Produced extends Generator<infer Value, unknown, never>
      ? Awaited<Value>
      : unknown;

type Returned<Produced> =
  Produced extends AsyncGenerator<unknown, infer Value, never>
    ? Value
    : Produced extends Generator<unknown, infer Value, never>
      ? Awaited<Value>
      : undefined;

// biome-ignore lint/suspicious/noConfusingVoidType: what a function without `return` returns.
type Nothing = undefined | void;

type StreamOutput<Value, Handler> =
  | (undefined extends Value ? Typed<Handler, ChunkOutput<Yielded<Result<Handler>>>>[] : never)
  | ([Exclude<Value, Nothing>] extends [never]
      ? never
      : unknown extends Value
        ? unknown
        : Typed<Handler, Exclude<Value, Nothing>>);

/** `ctx.chunk` and the chunks of batches wrap the output. */
type ChunkOutput<Value> = Value extends { readonly output: infer Output; readonly metrics: Metrics }
  ? Output
  : Value extends { readonly job: unknown; readonly output: infer Output }
    ? Output
    : Value;

/** A function that returns nothing has the output null. */
type SingleOutput<Value> = Value extends Nothing ? null : Value;

/** With an output schema, a value is what the schema returns. */
type Typed<Handler, Value> = Known<SchemaType<Handler, 'output', 'output'>, Value>;

// --- schemas and JSON --------------------------------------------------------------------------

/** A type of the handler's schema: in the definition, or beside the function in the module. */
type SchemaType<Handler, Name extends 'input' | 'output', Side extends 'input' | 'output'> = Known<
  SideOf<Member<MainOf<Handler>, Name>, Side>,
  SideOf<Member<Handler, Name>, Side>
>;

type Member<Value, Name> = Name extends keyof Value ? NonNullable<Value[Name]> : undefined;

type SideOf<Schema, Side extends 'input' | 'output'> = Schema extends {
  readonly '~standard': { readonly types?: infer Types };
}
  ? NonNullable<Types> extends { readonly [Name in Side]: infer Value }
    ? Value
    : unknown
  : unknown;

/** `Fallback` for unknown, any and never, which say nothing. */
type Known<Value, Fallback> = unknown extends Value
  ? Fallback
  : [Value] extends [never]
    ? Fallback
    : Value;

/** What JSON makes of a value: bytes become base64, `toJSON` applies. */
export type Jsonify<Value> = unknown extends Value
  ? Value
  : Value extends null | undefined | boolean | number | string
    ? Value
    : Value extends Uint8Array | ArrayBuffer
      ? string
      : Value extends { toJSON(): infer Converted }
        ? Jsonify<Converted>
        : Value extends readonly unknown[]
          ? { [Index in keyof Value]: Jsonify<Value[Index]> }
          : Value extends ((...parameters: never) => unknown) | symbol | bigint
            ? never
            : { [Name in keyof Value as Name extends symbol ? never : Name]: Jsonify<Value[Name]> };
