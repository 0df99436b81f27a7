/* SPDX-License-Identifier: Apache-2.0 */
/* What --plan prints: what would be done, before anything is. */
#include <stdio.h>

#include "pipeline.h"
#include "plan.h"
#include "stage.h"

json_t *plan_json(const struct build *b, const char *output)
{
	CLEANUP_FREE char *loader = bootchain_loader_name(&b->before);
	json_t *steps = json_array(), *kernels = json_array(), *params = json_array();

	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]))
			json_array_append_new(steps,
			                      json_pack("{s:s, s:s}", "stage", stages[i]->name,
			                                "what", stages[i]->summary));
	for (size_t i = 0; i < b->guest->kernel_count; i++)
		json_array_append_new(
			kernels, json_pack("{s:s, s:b}", "version", b->guest->kernels[i].version,
		                           "has_initramfs", b->guest->kernels[i].has_initramfs));
	for (size_t i = 0; i < b->params.count; i++)
		json_array_append_new(params, json_string(b->params.items[i]));
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "base", b->base_path,
	                 "os", b->guest->pretty_name, "output", output, "generator",
	                 b->guest->generator, "loader", loader, "backend",
	                 b->sandbox ? "sandbox" : "appliance", "kernels", kernels, "parameters",
	                 params, "stages", steps);
}

void plan_print(const struct build *b, const char *output)
{
	CLEANUP_FREE char *params = strv_join(&b->params, " ");
	CLEANUP_FREE char *blocked = strv_join(&b->blocked, ", ");
	CLEANUP_FREE char *loader = bootchain_loader_name(&b->before);

	printf("base        %s\n", b->base_path);
	printf("            %s, %s, %s with %s\n", b->guest->pretty_name, b->guest->arch, loader,
	       b->guest->generator);
	for (size_t i = 0; i < b->guest->kernel_count; i++)
		printf("kernel      %s%s\n", b->guest->kernels[i].version,
		       b->guest->kernels[i].has_initramfs ? "" : " (no initramfs yet)");
	printf("parameters  %s\n", *params ? params : "(none)");
	printf("blocked     %s\n", blocked);
	printf("programs    in the %s\n", b->sandbox ? "sandbox" : "appliance");
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]))
			printf("stage       %-12s %s\n", stages[i]->name, stages[i]->summary);
	printf("output      %s\n", output);
}
