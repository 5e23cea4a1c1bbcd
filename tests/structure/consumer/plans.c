/* Prints what a plan of the C face makes of 0.26 with a scale of a tenth. */
#include <stdio.h>
#include <steelyard/c/steelyard_c_plans.h>

int main(void) {
  steelyard_context *context;
  steelyard_plan_descriptor descriptor;
  steelyard_plan *plan;
  steelyard_plan_arrays arrays;
  float x = 0.26f, y = 0, scale = 0.1f;
  int64_t one = 1;
  const DLTensor value = {&x, {kDLCPU, 0}, 0, {kDLFloat, 32, 1}, NULL, NULL, 0};
  DLTensor to = value, scales = value;
  to.data = &y;
  scales.data = &scale;
  scales.ndim = 1;
  scales.shape = &one;
  if (steelyard_context_create(&context)) return 1;
  steelyard_plan_descriptor_init(&descriptor, sizeof descriptor);
  steelyard_plan_arrays_init(&arrays, sizeof arrays);
  arrays.x = &value;
  arrays.y = &to;
  arrays.scale = &scales;
  if (steelyard_plan_create(context, &descriptor, &plan) ||
      steelyard_plan_run(context, plan, NULL, NULL, 0, &arrays)) {
    fprintf(stderr, "%s\n", steelyard_context_message(context));
    return 1;
  }
  printf("%.1f\n", y);
  steelyard_plan_destroy(plan);
  steelyard_context_destroy(context);
  return 0;
}
