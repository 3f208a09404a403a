// What the platform is asked for, as callers write it: what has a default may be left out.
import type { z } from 'zod';
import type { endpointCreation, endpointUpdate } from '../wire/resources/endpoint.ts';
import type { keyCreation } from '../wire/resources/key.ts';
import type { podCreation, podUpdate } from '../wire/resources/pod.ts';
import type { templateCreation, templateUpdate } from '../wire/resources/template.ts';

export type NewPod = z.input<typeof podCreation>;
export type PodChange = z.input<typeof podUpdate>;
export type NewEndpoint = z.input<typeof endpointCreation>;
export type EndpointChange = z.input<typeof endpointUpdate>;
export type NewTemplate = z.input<typeof templateCreation>;
export type TemplateChange = z.input<typeof templateUpdate>;
export type NewKey = z.input<typeof keyCreation>;
