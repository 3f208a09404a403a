// The form for a new endpoint. Its other settings have defaults, which its page can change.
import { ChoiceSelect, GpuSelects, useChoices } from '../../parts/forms/choices.tsx';
import { Field } from '../../parts/forms/field.tsx';
import { FieldsForm, type FieldValues } from '../../parts/forms/fields-form.tsx';
import { platform } from '../../platform/calls.ts';
import { go, hrefOf } from '../../routing/location.ts';
import { pathOf } from './frame.tsx';

interface CreationFormProps {
  onDone: () => void;
  onBack: () => void;
}

export function CreationForm(props: CreationFormProps) {
  const templates = useChoices('templates');
  const gpus = useChoices('gpus') ?? [];
  const volumes = useChoices('volumes') ?? [];
  const create = async ({ all, number, text }: FieldValues) => {
    const { id } = await platform.endpoints.create({
      ...{ name: text('name'), templateId: text('templateId') },
      type: text('type') === 'LOAD_BALANCER' ? 'LOAD_BALANCER' : 'QUEUE',
      ...{ gpuTypeIds: all('gpuTypeIds'), networkVolumeId: text('networkVolumeId') || null },
      ...{ workersMin: number('workersMin'), workersMax: number('workersMax') },
      idleTimeout: number('idleTimeout'),
    });
    go(pathOf(id));
  };
  return (
    <FieldsForm label="New endpoint" submit="Create" act={create} {...props}>
      {templates?.length === 0 && (
        <p>
          An endpoint needs a template, which has the image or the handler of its workers.{' '}
          <a href={hrefOf('/templates')}>Create a template</a>, or deploy a handler with{' '}
          <code>millrace deploy handler.ts</code>: it creates both.
        </p>
      )}
      <Field label="Name" help="Also its address if it is a DNS label, such as my-model">
        {(ids) => <input {...ids} name="name" type="text" required maxLength={200} />}
      </Field>
      <Field label="Template">
        {(ids) => <ChoiceSelect {...ids} name="templateId" choices={templates ?? []} />}
      </Field>
      <Field label="Type">
        {(ids) => (
          <select {...ids} name="type">
            <option value="QUEUE">Queue of jobs</option>
            <option value="LOAD_BALANCER">Load balancer for HTTP requests</option>
          </select>
        )}
      </Field>
      {gpus.length > 0 && (
        <Field label="GPU types" help="In order of preference">
          {(ids) => <GpuSelects {...ids} name="gpuTypeIds" value="" choices={gpus} />}
        </Field>
      )}
      {volumes.length > 0 && (
        <Field label="Network volume" help="All workers mount it">
          {(ids) => <ChoiceSelect {...ids} name="networkVolumeId" choices={volumes} none="None" />}
        </Field>
      )}
      <Field label="Minimum workers" help="Run even without load">
        {(ids) => (
          <input {...ids} name="workersMin" type="number" required min={0} defaultValue="0" />
        )}
      </Field>
      <Field label="Maximum workers" help="0 switches the endpoint off">
        {(ids) => (
          <input {...ids} name="workersMax" type="number" required min={0} defaultValue="3" />
        )}
      </Field>
      <Field label="Idle timeout, s" help="An idle worker stops after this time">
        {(ids) => (
          <input {...ids} name="idleTimeout" type="number" required min={1} defaultValue="5" />
        )}
      </Field>
    </FieldsForm>
  );
}
