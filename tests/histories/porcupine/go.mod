module rowtide.test/porcupine

go 1.21

require github.com/anishathalye/porcupine v1.0.2
