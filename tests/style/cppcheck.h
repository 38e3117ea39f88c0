/* SPDX-License-Identifier: MIT */
/* Loops of jansson as cppcheck can follow them: it reads no system headers. */
#define json_array_foreach(array, i, value)                         \
	for ((i) = 0; (i) < json_array_size(array) &&               \
		      ((value) = json_array_get(array, i)) != NULL; \
	     (i)++)
#define json_object_foreach(object, key, value)                          \
	for ((key) = first_key(object);                                  \
	     (key) != NULL && ((value) = value_of(object, key)) != NULL; \
	     (key) = next_key(object, key))
