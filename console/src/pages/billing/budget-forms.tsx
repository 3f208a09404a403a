// The forms of a budget: a new one, and its name and limits.
import type { BudgetRecord } from '../../../../src/client.ts';
import { EndpointField } from '../../parts/forms/endpoint-field.tsx';
import { Field } from '../../parts/forms/field.tsx';
import { FieldsForm, type FieldValues } from '../../parts/forms/fields-form.tsx';
import { platform } from '../../platform/calls.ts';
import { isOperator, may } from '../../platform/session.ts';

interface FormProps {
  onDone: () => void;
  onBack: () => void;
}

/** The form has percent, the platform a share. */
const PERCENT = 100;

const readLimits = ({ number, text }: FieldValues) => ({
  ...{ name: text('name'), limit: number('limit'), warnAt: number('warnAt') / PERCENT },
});

export function CreationForm(props: FormProps) {
  const create = (values: FieldValues) =>
    platform.budgets.create({
      ...readLimits(values),
      ...(values.text('userId') && { userId: values.text('userId') }),
      endpointId: values.text('endpoint') || null,
      period: values.text('period') === 'day' ? 'day' : 'month',
    });
  return (
    <FieldsForm label="New budget" submit="Create" act={create} {...props}>
      <Limits />
      <Field label="Period" help="In UTC">
        {(ids) => (
          <select {...ids} name="period">
            <option value="month">Month</option>
            <option value="day">Day</option>
          </select>
        )}
      </Field>
      {isOperator() && may('admin') && (
        <Field label="User" help="Whose costs the budget limits; empty: yours">
          {(ids) => <input {...ids} name="userId" type="text" />}
        </Field>
      )}
      <EndpointField
        none="All pods, endpoints and volumes"
        isTyped={isOperator() && may('admin')}
      />
    </FieldsForm>
  );
}

export function UpdateForm({ budget, ...props }: FormProps & { budget: BudgetRecord }) {
  const update = (values: FieldValues) => platform.budgets.update(budget.id, readLimits(values));
  return (
    <FieldsForm label={`Change the budget ${budget.name}`} submit="Save" act={update} {...props}>
      <Limits budget={budget} />
    </FieldsForm>
  );
}

function Limits({ budget }: { budget?: BudgetRecord }) {
  const { limit, name, warnAt = 0.8 } = budget ?? {};
  return (
    <>
      <Field label="Name">
        {(ids) => (
          <input {...ids} name="name" type="text" required maxLength={200} defaultValue={name} />
        )}
      </Field>
      <Field label="Limit, USD">
        {(ids) => (
          <input
            {...ids}
            {...{ name: 'limit', type: 'number', required: true, min: 0.01, step: 'any' }}
            defaultValue={limit?.toString()}
          />
        )}
      </Field>
      <Field label="Warn at, %" help="The budget's state is a warning from this share on">
        {(ids) => (
          <input
            {...ids}
            {...{ name: 'warnAt', type: 'number', required: true, min: 1, max: 100, step: 'any' }}
            defaultValue={String(Number((warnAt * PERCENT).toFixed(6)))}
          />
        )}
      </Field>
    </>
  );
}
