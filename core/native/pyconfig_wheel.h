/* What Python's headers need to know of a target that is not the machine that compiles. A copy of
 * them by hatch_wheels.py has it as pyconfig.h. With the stable ABI no more of that matters than
 * sizes and which system it is. */
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#define SIZEOF_SHORT __SIZEOF_SHORT__
#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
#define SIZEOF_TIME_T 8
#define HAVE_SSIZE_T 1
#define STDC_HEADERS 1

#ifdef _WIN32
/* Data of python3.dll, such as the type of bytes, are declared as imported. */
#define MS_WIN32
#define MS_WIN64
#define MS_WINDOWS
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED
#else
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_UNISTD_H 1
#define HAVE_WCHAR_H 1
#endif

#endif
