// Types of the requests that create and change resources.
import type { z } from 'zod';
import type { keyCreation } from '../wire/resources/key.ts';
import type { ChangeOf, CreationOf } from './resource-calls.ts';

export type NewPod = CreationOf<'pods'>;
export type PodChange = ChangeOf<'pods'>;
export type NewEndpoint = CreationOf<'endpoints'>;
export type EndpointChange = ChangeOf<'endpoints'>;
export type NewTemplate = CreationOf<'templates'>;
export type TemplateChange = ChangeOf<'templates'>;
export type NewKey = z.input<typeof keyCreation>;
