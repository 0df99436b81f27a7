/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "log.h"
#include "str.h"

#undef error_set
#undef error_errno
#undef error_prefix
#undef error_hint
#undef error_code
#undef error_take

static void replace(char **where, char *what)
{
	free(*where);
	*where = what;
}

int error_set(struct error *err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	replace(&err->message, str_vformat(format, args));
	va_end(args);
	return -1;
}

int error_errno(struct error *err, int errnum, const char *format, ...)
{
	va_list args;
	char *what;

	va_start(args, format);
	what = str_vformat(format, args);
	va_end(args);
	replace(&err->message, str_format("%s: %s", what, strerror(errnum)));
	free(what);
	return -1;
}

int error_prefix(struct error *err, const char *format, ...)
{
	va_list args;
	char *what;

	va_start(args, format);
	what = str_vformat(format, args);
	va_end(args);
	replace(&err->message,
	        str_format("%s: %s", what, err->message ? err->message : "unknown error"));
	free(what);
	return -1;
}

int error_hint(struct error *err, const char *format, ...)
{
	va_list args;

	if (err->hint)
		return -1;
	va_start(args, format);
	err->hint = str_vformat(format, args);
	va_end(args);
	return -1;
}

int error_code(struct error *err, enum exit_code code)
{
	if (err->code == EXIT_OK)
		err->code = code;
	return -1;
}

int error_take(struct error *err, struct error *from)
{
	error_free(err);
	*err = *from;
	*from = (struct error)ERROR_INIT;
	return -1;
}

enum exit_code error_exit_code(const struct error *err)
{
	return err->code == EXIT_OK ? EXIT_BUILD : err->code;
}

void error_print(const struct error *err, struct log *log)
{
	log_error(log, "error: ", err->message ? err->message : "unknown error");
	if (err->hint)
		log_error(log, "hint: ", err->hint);
}

void error_free(struct error *err)
{
	free(err->message);
	free(err->hint);
	*err = (struct error)ERROR_INIT;
}
