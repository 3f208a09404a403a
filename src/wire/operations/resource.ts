// Describes a resource: its schemas, texts and examples. Its five verbs, their routes, scopes,
// OpenAPI entries and schema names follow from the description.
import { z } from 'zod';
import {
  listResourceRoutes,
  type ResourceOutline,
  type ResourceRoutes,
  spellName,
} from '../routes/route.ts';
import {
  ANSWER_NOTHING,
  type Answers,
  answerJson,
  JSON_TYPE,
  type Operation,
  type OperationText,
  PAGE_PARAMETERS,
  type Parameter,
  pageCursor,
  type RequestBody,
} from './operation.ts';

type VerbText = Pick<OperationText, 'summary' | 'description'>;

/** A resource that cannot be changed after its creation. */
export interface FixedResourceText<
  O extends ResourceOutline,
  R extends z.ZodType,
  C extends z.ZodType,
> {
  outline: O;
  /** What the resources are, in one sentence. */
  about: string;
  /** Singular and plural in sentences. Default: the outline's words. */
  noun?: { one: string; several: string };
  /** Schema of one record in answers. */
  record: R;
  creation: C;
  examples: { record: z.output<R>; creation: z.input<C> };
  texts: { create: VerbText; delete: VerbText };
  /** Description of an answer with one record. Default: `The template.` */
  answer?: string;
  /** Answer of the creation. Default: the record. */
  created?: Answers;
  /** Parameters of the list, besides those of every list. */
  listQuery?: readonly Parameter[];
  /**
   * Statuses of problems that every verb can have, besides those that follow from the rest of the
   * description.
   */
  refusals?: readonly number[];
  /** Largest body of a creation or change, bytes. Default: RESOURCE_BODY_BYTES. */
  maxBytes?: number;
}

export interface ResourceText<
  O extends ResourceOutline,
  R extends z.ZodType,
  C extends z.ZodType,
  U extends z.ZodType,
> extends FixedResourceText<O, R, C> {
  update: U;
  examples: { record: z.output<R>; creation: z.input<C>; update: z.input<U> };
  texts: { create: VerbText; update: VerbText; delete: VerbText };
}

export type BodyOperation<Path extends string, S extends z.ZodType> = Operation<Path> & {
  body: RequestBody<S>;
};

export interface FixedResource<
  O extends ResourceOutline = ResourceOutline,
  R extends z.ZodType = z.ZodType,
  C extends z.ZodType = z.ZodType,
> {
  outline: O;
  about: string;
  record: R;
  /** One page of its list. */
  list: z.ZodType;
  operations: {
    list: Operation<ResourceRoutes<O>['list']['path']>;
    create: BodyOperation<ResourceRoutes<O>['create']['path'], C>;
    get: Operation<ResourceRoutes<O>['get']['path']>;
    delete: Operation<ResourceRoutes<O>['delete']['path']>;
  };
}

export interface Resource<
  O extends ResourceOutline = ResourceOutline,
  R extends z.ZodType = z.ZodType,
  C extends z.ZodType = z.ZodType,
  U extends z.ZodType = z.ZodType,
> extends FixedResource<O, R, C> {
  operations: FixedResource<O, R, C>['operations'] & {
    update: BodyOperation<ResourceRoutes<O>['update']['path'], U>;
  };
}

export type PageSchema<Member extends string, R extends z.ZodType> = z.ZodObject<
  Record<Member, z.ZodArray<R>> & { cursor: typeof pageCursor }
>;

/** Schema of the list's answer. */
export interface WithPages<O extends ResourceOutline, R extends z.ZodType> {
  list: PageSchema<O['plural'], R>;
}

/** The answer of a list: records below `member`, and where the next page begins. */
export function describePage<Member extends string, R extends z.ZodType>(
  member: Member,
  record: R,
): PageSchema<Member, R> {
  const records = { [member]: z.array(record) };
  // The key is the member's name.
  return z.object({ ...(records as Record<Member, z.ZodArray<R>>), cursor: pageCursor });
}

/** Lists, creates, shows and deletes. */
export function describeFixedResource<
  O extends ResourceOutline,
  R extends z.ZodType,
  C extends z.ZodType,
>(text: FixedResourceText<O, R, C>): FixedResource<O, R, C> & WithPages<O, R> {
  const { about, creation, examples, maxBytes, outline, record, refusals, texts } = text;
  const tag = outline.plural;
  const { one, several } = nameResource(text);
  const name = capitalise(outline.singular);
  const list = describePage<O['plural'], R>(outline.plural, record);
  const page = { [outline.plural]: [examples.record] };
  const shown = answerJson(record, text.answer ?? `The ${one}.`, examples.record);
  const routes = listResourceRoutes(outline);
  const common = { tag, ...(refusals && { refusals }) };
  const change = { tag, refusals: [409] };
  return {
    outline,
    about,
    record,
    list,
    operations: {
      list: {
        id: `list${capitalise(outline.plural)}`,
        ...routes.list,
        ...common,
        summary: `List ${several}, newest first`,
        query: [...(text.listQuery ?? []), ...PAGE_PARAMETERS],
        answers: {
          200: {
            description: 'One page.',
            content: { [JSON_TYPE]: { schema: list, example: page } },
          },
        },
      },
      create: {
        id: `create${name}`,
        ...routes.create,
        ...change,
        ...texts.create,
        body: describeBody(creation, examples.creation, maxBytes),
        answers: text.created ?? {
          201: { ...shown[200], headers: ['Location'] },
        },
      },
      get: {
        id: `get${name}`,
        ...routes.get,
        ...common,
        summary: `Show one ${one}`,
        answers: shown,
      },
      delete: {
        id: `delete${name}`,
        ...routes.delete,
        ...change,
        ...texts.delete,
        answers: ANSWER_NOTHING,
      },
    },
  };
}

/** Lists, creates, shows, updates and deletes. */
export function describeResource<
  O extends ResourceOutline,
  R extends z.ZodType,
  C extends z.ZodType,
  U extends z.ZodType,
>(text: ResourceText<O, R, C, U>): Resource<O, R, C, U> & WithPages<O, R> {
  const { examples, maxBytes, outline, record, texts, update } = text;
  const fixed = describeFixedResource(text);
  const { one } = nameResource(text);
  return {
    ...fixed,
    operations: {
      ...fixed.operations,
      update: {
        id: `update${capitalise(outline.singular)}`,
        tag: outline.plural,
        refusals: [409],
        ...listResourceRoutes(outline).update,
        ...texts.update,
        body: describeBody(update, examples.update, maxBytes),
        answers: answerJson(record, `The ${one}.`, examples.record),
      },
    },
  };
}

function describeBody<S extends z.ZodType>(
  schema: S,
  example: z.input<S>,
  maxBytes: number | undefined,
): RequestBody<S> {
  return { schema, example, ...(maxBytes !== undefined && { maxBytes }) };
}

function nameResource({
  noun,
  outline,
}: {
  noun?: { one: string; several: string };
  outline: ResourceOutline;
}): { one: string; several: string } {
  return noun ?? { one: spellName(outline.singular), several: spellName(outline.plural) };
}

function capitalise(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
