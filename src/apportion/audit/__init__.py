"""`apportion audit`: judge methods of credit by answers of which it is known what each step changed."""

from apportion.audit.judge import Audit, Figure, Judged
from apportion.audit.run import Data, audit, usual_methods

__all__ = ["Audit", "Data", "Figure", "Judged", "audit", "usual_methods"]
