/* SPDX-License-Identifier: Apache-2.0 */
/* What --plan prints: what would be done, before anything is. */
#include <stdio.h>

#include "json-text.h"
#include "pipeline.h"
#include "plan.h"
#include "stage.h"

static json_t *plan_driver(const struct build *b)
{
	json_t *driver = b->driver.branch ? driver_plan_json(&b->driver) : json_null();

	if (b->driver.branch)
		json_object_set_new(driver, "replaces", json_text(b->driver_found));
	return driver;
}

static json_t *plan_containerd(const struct build *b)
{
	if (!b->options->containerd_runtime)
		return json_null();
	return json_pack("{s:s, s:b, s:o, s:o}", "runtime", b->options->containerd_runtime,
	                 "default", b->options->default_runtime, "version",
	                 json_text(b->containerd.version), "toolkit",
	                 json_text_list(&b->toolkit_packages));
}

static void print_driver(const struct build *b)
{
	const struct driver_plan *d = &b->driver;
	CLEANUP_FREE char *download = str_size(d->download_bytes);
	CLEANUP_FREE char *installed = str_size(d->installed_bytes);

	if (!d->branch)
		return;
	printf("driver      %s, %s modules, from %s%s%s\n", d->version,
	       driver_flavour_name(d->flavour), driver_source_name(d->source),
	       d->forwarded ? ", forwarded from branch " : "", d->forwarded ? d->branch_asked : "");
	if (b->driver_found)
		printf("            takes out: %s\n", b->driver_found);
	for (size_t i = 0; i < d->kernel_count; i++)
		printf("            kernel %s: %s%s%s\n", d->kernels[i].version,
		       driver_how_name(d->kernels[i].how), d->kernels[i].package ? ", " : "",
		       d->kernels[i].package ? d->kernels[i].package : "");
	printf("            %zu packages, %s to download, %s installed\n", d->packages.count,
	       download, installed);
}

static void print_containerd(const struct build *b)
{
	CLEANUP_FREE char *toolkit = strv_join(&b->toolkit_packages, ", ");

	if (!b->options->containerd_runtime)
		return;
	printf("containerd  %s: runtime '%s'%s%s%s\n",
	       b->containerd.version ? b->containerd.version : "of unknown version",
	       b->options->containerd_runtime, b->options->default_runtime ? ", as default" : "",
	       *toolkit ? ", with " : "", toolkit);
}

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
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "base",
	                 b->base_path, "os", b->guest->pretty_name, "output", output, "generator",
	                 b->guest->generator, "loader", loader, "backend",
	                 b->sandbox ? "sandbox" : "appliance", "kernels", kernels, "parameters",
	                 params, "stages", steps, "driver", plan_driver(b), "containerd",
	                 plan_containerd(b));
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
	print_driver(b);
	print_containerd(b);
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]))
			printf("stage       %-12s %s\n", stages[i]->name, stages[i]->summary);
	printf("output      %s\n", output);
}
