#include "millstream/core/maker.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "loader.h"
#include "millstream/core/error.h"
#include "millstream/loader/workshop.h"
#include "millstream/source/made.h"
#include "millstream/transform/made.h"
#include "millstream/workers/job.h"
#include "millstream/workers/process_crew.h"
#include "millstream/workers/thread_crew.h"
#include "millstream/workers/worker.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

using FieldSpec = std::tuple<std::string, std::string, std::vector<std::int64_t>>;

Schema schema(const std::vector<FieldSpec>& specs) {
  Schema fields;
  for (const auto& [name, dtype, shape] : specs) {
    fields.push_back({name, dtype_named(dtype), Shape(shape)});
  }
  return fields;
}

nb::list views(std::span<const Column> columns, std::int64_t rows, nb::handle owner) {
  nb::list result;
  for (const Column& column : columns) {
    result.append(rows_array(column.dtype, column.shape, column.data, rows,
                             column.stride, owner));
  }
  return result;
}

nb::capsule capsule_of(const std::shared_ptr<const void>& owner) {
  using Pointer = std::shared_ptr<const void>;
  return nb::capsule(new Pointer(owner), [](void* pointer) noexcept {
    delete static_cast<Pointer*>(pointer);
  });
}

std::string as_string(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::string as_text(nb::handle object) {
  const nb::object words = nb::steal(PyObject_Str(object.ptr()));
  // Paths may hold what UTF-8 cannot.
  const nb::object bytes =
      nb::steal(words.is_valid() ? PyUnicode_AsEncodedString(words.ptr(), "utf-8",
                                                             "backslashreplace")
                                 : nullptr);
  if (bytes.is_valid()) return as_string(nb::borrow<nb::bytes>(bytes));
  PyErr_Clear();
  return "an error that cannot be put in words";
}

/// Whether another try may succeed.
bool transient(const nb::python_error& error) {
  if (error.matches(
          nb::module_::import_("millstream._core.errors").attr("WorkerError"))) {
    return true;
  }
  int code = 0;
  const bool known =
      error.matches(PyExc_OSError) &&
      nb::try_cast<int>(nb::getattr(error.value(), "errno", nb::none()), code);
  return known && code == EIO;
}

/// What a Python function threw at a row of a part, for the engine.
FunctionError failure(nb::python_error& error, const Work& part, std::int64_t row) {
  PyException_SetTraceback(error.value().ptr(), error.traceback().ptr() != nullptr
                                                    ? error.traceback().ptr()
                                                    : Py_None);
  const std::int64_t last = part.rows() - 1;
  const std::int64_t sample =
      part.indices[static_cast<std::size_t>(std::clamp<std::int64_t>(row, 0, last))];
  const std::string type = nb::cast<std::string>(error.type().attr("__name__"));
  return FunctionError(text(type, ": ", as_text(error.value()), " (",
                            samples_at(row, part.indices), ")"),
                       sample, "", kept(error.value()), transient(error));
}

void call(const std::shared_ptr<const void>& function, const Work& part,
          std::atomic<std::int64_t>& row, const std::shared_ptr<const void>& memory) {
  const auto gil = in_python([] { return std::make_unique<nb::gil_scoped_acquire>(); });
  const nb::handle callable(
      const_cast<PyObject*>(static_cast<const PyObject*>(function.get())));
  try {
    const nb::capsule owner = capsule_of(memory);
    const nb::object seeds = part.seeds.empty()
                                 ? nb::none()
                                 : numbers_array(part.seeds.data(), part.seeds.size());
    const nb::tuple arguments = nb::make_tuple(
        numbers_array(part.indices.data(), part.indices.size()), seeds,
        views(part.input, part.rows(), owner), views(part.output, part.rows(), owner),
        cell_array(reinterpret_cast<std::int64_t*>(&row), owner));
    const nb::object beside = nb::steal(in_python(
        [&] { return PyObject_Call(callable.ptr(), arguments.ptr(), nullptr); }));
    if (!beside.is_valid()) throw nb::python_error();
    if (part.making.beside != nullptr && !beside.is_none()) {
      part.making.beside->add({part.first, part.rows(), "", kept(beside)});
    }
  } catch (nb::python_error& error) {
    throw failure(error, part, row.load());
  }
}

struct MakerHandle {
  std::shared_ptr<Maker> shared;
  ~MakerHandle() {
    const GilRelease released;  // a function may need it to come to an end
    shared.reset();
  }
};

std::unique_ptr<MakerHandle> thread_crew(nb::callable function, int workers,
                                         std::int64_t timeout) {
  ThreadCrew::Function calls;
  calls.make = [held = kept(function)](const Work& part, std::atomic<std::int64_t>& row,
                                       const std::shared_ptr<const void>& owner) {
    call(held, part, row, owner);
  };
  calls.whereabouts = [](std::uint64_t thread) {
    const auto gil =
        in_python([] { return std::make_unique<nb::gil_scoped_acquire>(); });
    try {
      const auto tasks = nb::module_::import_("millstream._workers.tasks");
      return as_text(tasks.attr("whereabouts")(thread));
    } catch (const std::exception&) {
      return std::string();
    }
  };
  return std::unique_ptr<MakerHandle>(new MakerHandle{std::make_shared<ThreadCrew>(
      std::move(calls), workers, std::chrono::milliseconds(timeout))});
}

std::unique_ptr<MakerHandle> process_crew(const std::vector<nb::bytes>& command,
                                          const std::vector<nb::bytes>& environment,
                                          const nb::bytes& setup, int workers,
                                          std::int64_t timeout, int restarts) {
  Launch launch{{}, {}, as_string(setup)};
  for (const nb::bytes& word : command) launch.command.push_back(as_string(word));
  for (const nb::bytes& word : environment) {
    launch.environment.push_back(as_string(word));
  }
  const ProcessCrew::Options options{workers, std::chrono::milliseconds(timeout),
                                     restarts};
  return std::unique_ptr<MakerHandle>(
      new MakerHandle{std::make_shared<ProcessCrew>(std::move(launch), options)});
}

std::vector<std::int64_t> pids(const MakerHandle& handle) {
  const auto* crew = dynamic_cast<const ProcessCrew*>(handle.shared.get());
  return crew == nullptr ? std::vector<std::int64_t>{} : crew->pids();
}

struct WorkshopHandle {
  std::shared_ptr<Workshop> running;
  ~WorkshopHandle() {
    const GilRelease released;
    running.reset();
  }
};

std::unique_ptr<WorkshopHandle> workshop(const MakerHandle& maker,
                                         const std::vector<FieldSpec>& fields,
                                         std::int64_t rows, int at_once) {
  return std::unique_ptr<WorkshopHandle>(new WorkshopHandle{
      std::make_shared<Workshop>(maker.shared, schema(fields), rows, at_once)});
}

using TicketHandle = Handle<Ticket>;

TicketHandle begin(
    WorkshopHandle& handle,
    const nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>&
        indices,
    const std::optional<nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig,
                                    nb::device::cpu>>& seeds) {
  std::vector<std::uint64_t> numbers;
  if (seeds) numbers.assign(seeds->data(), seeds->data() + seeds->size());
  return {handle.running->begin({indices.data(), indices.data() + indices.size()},
                                std::move(numbers))};
}

/// (fields and mask, parts beside), or None if it is not done in time.
nb::object wait(const TicketHandle& ticket, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration<double>(std::min(seconds, 1e8));
  while (true) {
    std::shared_ptr<const Batch> batch;
    {
      const GilRelease released;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      batch = ticket.shared->wait(std::clamp(left, std::chrono::milliseconds(0),
                                             std::chrono::milliseconds(50)));
    }
    if (batch != nullptr) {
      nb::list beside = parts_beside(*batch);
      return nb::make_tuple(batch_arrays(std::move(batch), ticket.shared->layout()),
                            beside);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (std::chrono::steady_clock::now() >= deadline) return nb::none();
  }
}

/// A worker and the fields of its rows.
struct WorkerHandle {
  explicit WorkerHandle(std::int64_t parent) : worker(parent) {}

  Worker worker;
  Schema inputs;
  Schema outputs;
};

void ready(WorkerHandle& handle, const std::vector<FieldSpec>& inputs,
           const std::vector<FieldSpec>& outputs) {
  handle.inputs = schema(inputs);
  handle.outputs = schema(outputs);
  handle.worker.ready();
}

/// The next task's (indices, seeds, input, output), or None when there will be none.
/// The last two are in shared memory, which is there for this task only.
nb::object next_task(nb::handle self) {
  auto& handle = nb::cast<WorkerHandle&>(self);
  Worker& worker = handle.worker;
  bool more;
  {
    const GilRelease released;
    more = worker.next();
  }
  if (!more) return nb::none();
  const Task& task = worker.task();
  const auto rows = static_cast<std::int64_t>(task.indices.size());
  const auto listed = [&](const std::vector<Task::Rows>& columns,
                          const Schema& fields) {
    nb::list result;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Field& field = fields.at(i);
      result.append(rows_array(field.dtype, field.shape, worker.data(columns[i]), rows,
                               columns[i].stride, self));
    }
    return result;
  };
  const nb::object seeds = task.seeds.empty()
                               ? nb::none()
                               : numbers_array(task.seeds.data(), task.seeds.size());
  return nb::make_tuple(numbers_array(task.indices.data(), task.indices.size()), seeds,
                        listed(task.input, handle.inputs),
                        listed(task.output, handle.outputs));
}

}  // namespace

void bind_maker(nb::module_& module) {
  nb::class_<MakerHandle>(module, "Maker", "Threads or processes that make samples.")
      .def_prop_ro("workers", [](const MakerHandle& m) { return m.shared->workers(); })
      .def_prop_ro("pids", pids, "The worker processes that run now.")
      .def(
          "close", [](MakerHandle& m) { m.shared->close(); },
          nb::call_guard<GilRelease>(), "Ends them.");

  module.def("thread_crew", thread_crew, "function"_a, "workers"_a, "timeout"_a, R"(
Threads that call a function for parts of batches.

Args:
  function: Called with (indices, seeds, inputs, outputs, row); returns what travels
    beside the rows, a value a row, or None.
  workers: How many threads.
  timeout: Milliseconds that a row may take; 0 for any time.)");
  module.def("process_crew", process_crew, "command"_a, "environment"_a, "setup"_a,
             "workers"_a, "timeout"_a, "restarts"_a, R"(
Processes that make rows in memory that is shared with them.

Args:
  command: What to run; it uses `Worker`.
  environment: Its environment, "NAME=value".
  setup: What each of them is told first.
  workers: How many processes.
  timeout: Milliseconds that a row may take; 0 for any time.
  restarts: How many may be replaced, their rows tried again.)");
  module.def(
      "made_source",
      [](std::int64_t size, const std::vector<FieldSpec>& fields,
         const MakerHandle& maker) {
        return Handle<Source>{
            std::make_shared<MadeSource>(size, schema(fields), maker.shared)};
      },
      "size"_a, "fields"_a, "maker"_a, "Samples that a maker makes.");
  module.def(
      "made_transform",
      [](const std::string& name, const std::vector<FieldSpec>& inputs,
         const std::vector<FieldSpec>& fields, const MakerHandle& maker, bool draws) {
        return Handle<Transform>{std::make_shared<MadeTransform>(
            name, schema(inputs), schema(fields), maker.shared, draws)};
      },
      "name"_a, "inputs"_a, "fields"_a, "maker"_a, "draws"_a = true,
      "Samples that a maker makes of samples and, if it draws, of their seeds.");

  nb::class_<TicketHandle>(module, "Ticket", "A batch that was begun.")
      .def_prop_ro("done", [](const TicketHandle& t) { return t.shared->done(); })
      .def("wait", wait, "seconds"_a,
           "(the rows of each field, and the mask; parts beside), or None.");
  nb::class_<WorkshopHandle>(module, "Workshop", "Batches of samples named one by one.")
      .def("begin", begin, "indices"_a, "seeds"_a.none(), "Queues a batch.")
      .def_prop_ro(
          "live", [](const WorkshopHandle& w) { return w.running->live(); },
          "Batches that someone still holds.")
      .def(
          "close", [](WorkshopHandle& w) { w.running->close(); },
          nb::call_guard<GilRelease>(), "Ends the maker.");
  module.def("workshop", workshop, "maker"_a, "fields"_a, "rows"_a, "at_once"_a,
             "Batches of samples named one by one, made by a maker.");

  nb::class_<WorkerHandle>(module, "Worker", "The inside of a worker process.")
      .def(nb::init<std::int64_t>(), "parent"_a, nb::call_guard<GilRelease>())
      .def_prop_ro("setup",
                   [](const WorkerHandle& w) {
                     const std::string& setup = w.worker.setup();
                     return nb::bytes(setup.data(), setup.size());
                   })
      .def_prop_ro(
          "row",
          [](nb::handle self) {
            std::atomic<std::int64_t>& row = nb::cast<WorkerHandle&>(self).worker.row();
            return cell_array(reinterpret_cast<std::int64_t*>(&row), self);
          },
          "Where it notes the row that it is at.")
      .def("ready", ready, "inputs"_a, "outputs"_a,
           "Says that it can take tasks; (name, dtype, shape) of each of their fields.")
      .def("next", next_task,
           "The next task's (indices, seeds, inputs, outputs), or None at the end.")
      .def(
          "done",
          [](WorkerHandle& w, const nb::bytes& beside) {
            w.worker.done({beside.c_str(), beside.size()});
          },
          "beside"_a)
      .def(
          "failed",
          [](WorkerHandle& w, std::int64_t row, const nb::bytes& message,
             const nb::bytes& bytes, bool transient) {
            w.worker.failed({row, as_string(message), as_string(bytes), transient});
          },
          "row"_a, "message"_a, "bytes"_a, "transient"_a);
  module.attr("WORDS_DESCRIPTOR") = kWorkerWords;
  module.attr("WHEREABOUTS_SIGNAL") = whereabouts_signal();
}

}  // namespace millstream::python
